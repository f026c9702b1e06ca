package soft

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// groups holds the multicast groups of a device and the queue pairs that are attached to each.
// Senders read it without a lock. A change replaces the map, under device.mu.
//
// Only the in-process link carries datagrams to groups so far: the sender puts one cell into the
// inbox of each attached queue pair's device. The sending queue pair gets none.
type groups struct {
	members atomic.Pointer[map[verbs.GID][]*qp]
}

// of returns the queue pairs that are attached to a group. The slice is never changed.
func (g *groups) of(group verbs.GID) []*qp {
	if m := g.members.Load(); m != nil {
		return (*m)[group]
	}
	return nil
}

// set replaces the members of a group. The caller holds device.mu.
func (g *groups) set(group verbs.GID, members []*qp) {
	all := map[verbs.GID][]*qp{}
	if m := g.members.Load(); m != nil {
		all = maps.Clone(*m)
	}
	if all[group] = members; len(members) == 0 {
		delete(all, group)
	}
	g.members.Store(&all)
}

// count returns how many groups there are. The caller holds device.mu.
func (g *groups) count() int {
	if m := g.members.Load(); m != nil {
		return len(*m)
	}
	return 0
}

// Limits of multicast: groups of a device, and queue pairs of a group.
const (
	maxMcastGroups = 1 << 12
	maxMcastAttach = 1 << 10
)

var _ verbs.Multicaster = (*qp)(nil)

// AttachMulticast makes the queue pair receive the datagrams to group. Attaching it again changes
// nothing. It cannot be closed until DetachMulticast.
func (q *qp) AttachMulticast(group verbs.GID) error {
	fail := func(err error) error { return fmt.Errorf("attach to multicast group %v: %w", group.Addr(), err) }
	d := q.d
	switch {
	case q.typ != verbs.UD:
		return fail(fmt.Errorf("a queue pair of type %v, groups are for UD: %w", q.typ, ucs.ErrInvalid))
	case !group.Addr().IsMulticast():
		return fail(fmt.Errorf("no multicast address: %w", ucs.ErrInvalid))
	case !d.hasMulticast():
		return fail(fmt.Errorf("link %q has no multicast: %w", d.info.Link, ucs.ErrUnsupported))
	}
	q.controlMu.Lock()
	defer q.controlMu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	members := d.groups.of(group)
	switch {
	case qpState(q.state.Load()) == qpClosed:
		return fail(ucs.ErrClosed)
	case slices.Contains(members, q):
		return nil
	case len(members) == 0 && d.groups.count() >= maxMcastGroups:
		return fail(fmt.Errorf("the device is in %d groups, which is the limit: %w", maxMcastGroups, ucs.ErrNoResource))
	case len(members) >= maxMcastAttach:
		return fail(fmt.Errorf("%d queue pairs are attached, which is the limit: %w", maxMcastAttach, ucs.ErrNoResource))
	}
	d.groups.set(group, append(slices.Clone(members), q))
	q.numGroups++
	return nil
}

// DetachMulticast undoes AttachMulticast.
func (q *qp) DetachMulticast(group verbs.GID) error {
	d := q.d
	d.mu.Lock()
	defer d.mu.Unlock()
	members := d.groups.of(group)
	at := slices.Index(members, q)
	if at < 0 {
		return fmt.Errorf("detach from multicast group %v: the queue pair is not attached: %w", group.Addr(), ucs.ErrInvalid)
	}
	d.groups.set(group, slices.Delete(slices.Clone(members), at, at+1))
	q.numGroups--
	return nil
}

// checkDetached refuses to close a queue pair that is attached to a group.
func (q *qp) checkDetached() error {
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	if q.numGroups > 0 {
		return fmt.Errorf("close qp 0x%x: it is attached to %d multicast groups: %w", uint32(q.num), q.numGroups, ucs.ErrBusy)
	}
	return nil
}

// hasMulticast reports whether the device's link carries datagrams to groups.
func (d *device) hasMulticast() bool { return d.kind == overInproc }

// sendGroup sends datagram p to all queue pairs that are attached to the group, but not to its
// sender. It returns false if an inbox had no room: that copy is lost.
func (l inprocLink) sendGroup(group *verbs.GID, p *packet) bool {
	all := true
	if p.DestQP != verbs.MulticastQPN {
		return true // no queue pair receives it
	}
	for _, o := range *l.d.conf.Switch.devices.Load() {
		if o == nil {
			continue
		}
		for _, q := range o.groups.of(*group) {
			if o == l.d && q.num == p.SrcQP {
				continue
			}
			p.DestQP = q.num
			all = l.sendCopy(o, p, group) && all
		}
	}
	p.DestQP = verbs.MulticastQPN
	return all
}
