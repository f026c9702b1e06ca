package soft

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// groups holds the multicast groups of a device and the queue pairs that are attached to each.
// The engine reads it without a lock. A change replaces the map.
//
// A datagram to a group has MulticastQPN as its destination, and each attached queue pair gets
// a copy, but not the one that sent it. How it gets to a device depends on the link:
//
//   - in-process: the sender puts one cell into the inbox for each attached queue pair;
//   - UDP: a device has a socket for each group (multicast_udp.go);
//   - Fabric: a device joins the group on the Fabric (MulticastFabric).
//
// The link joins a group when the first queue pair attaches, and leaves it when the last one
// detaches.
type groups struct {
	mu      sync.Mutex // serializes changes; taken after qp.controlMu, never by the engine
	members atomic.Pointer[map[verbs.GID][]*qp]
	sockets atomic.Pointer[udp.Set] // of a UDP device's groups; nil: it is in none
}

// of returns the queue pairs that are attached to a group. The slice is never changed.
func (g *groups) of(group verbs.GID) []*qp {
	if m := g.members.Load(); m != nil {
		return (*m)[group]
	}
	return nil
}

// set replaces the members of a group. The caller holds mu.
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

// count returns how many groups there are. The caller holds mu.
func (g *groups) count() int {
	if m := g.members.Load(); m != nil {
		return len(*m)
	}
	return 0
}

// Limits of multicast: groups of a device, which over UDP have a socket each, and queue pairs of
// a group.
const (
	maxMcastGroups    = 1 << 12
	maxMcastGroupsUDP = 1 << 8
	maxMcastAttach    = 1 << 10
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
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	members := d.groups.of(group)
	switch {
	case qpState(q.state.Load()) == qpClosed:
		return fail(ucs.ErrClosed)
	case slices.Contains(members, q):
		return nil
	case len(members) == 0 && d.groups.count() >= d.maxGroups():
		return fail(fmt.Errorf("the device is in %d groups, which is the limit: %w", d.maxGroups(), ucs.ErrNoResource))
	case len(members) >= maxMcastAttach:
		return fail(fmt.Errorf("%d queue pairs are attached, which is the limit: %w", maxMcastAttach, ucs.ErrNoResource))
	}
	if len(members) == 0 {
		if err := d.link.join(group); err != nil {
			return fail(err)
		}
	}
	d.groups.set(group, append(slices.Clone(members), q))
	q.numGroups++
	return nil
}

// DetachMulticast undoes AttachMulticast. Datagrams that were received before may still complete.
func (q *qp) DetachMulticast(group verbs.GID) error {
	d := q.d
	d.groups.mu.Lock()
	defer d.groups.mu.Unlock()
	fail := func(err error) error { return fmt.Errorf("detach from multicast group %v: %w", group.Addr(), err) }
	members := d.groups.of(group)
	at := slices.Index(members, q)
	if at < 0 {
		return fail(fmt.Errorf("the queue pair is not attached: %w", ucs.ErrInvalid))
	}
	d.groups.set(group, slices.Delete(slices.Clone(members), at, at+1))
	q.numGroups--
	if len(members) == 1 {
		if err := d.link.leave(group); err != nil {
			return fail(err)
		}
	}
	return nil
}

// checkDetached refuses to close a queue pair that is attached to a group.
func (q *qp) checkDetached() error {
	q.d.groups.mu.Lock()
	defer q.d.groups.mu.Unlock()
	if q.numGroups > 0 {
		return fmt.Errorf("close qp 0x%x: it is attached to %d multicast groups: %w", uint32(q.num), q.numGroups, ucs.ErrBusy)
	}
	return nil
}

// hasMulticast reports whether the device's link carries datagrams to groups.
func (d *device) hasMulticast() bool {
	_, ok := d.conf.Fabric.(MulticastFabric)
	return ok || d.conf.Fabric == nil
}

// maxGroups returns the most groups that queue pairs of the device are attached to.
func (d *device) maxGroups() int {
	switch {
	case !d.hasMulticast():
		return 0
	case d.kind == overUDP:
		return maxMcastGroupsUDP
	}
	return maxMcastGroups
}

// receiveGroup handles datagram p, which was sent to group p.dgid: for each attached queue pair
// but the sender. own is set if this device sent it. It waits for queue pairs that other
// goroutines own.
func (d *device) receiveGroup(p *packet, own bool, now ucs.Time) {
	if p.DestQP != verbs.MulticastQPN {
		d.own.counts.add(cntDroppedQPN, 1)
		return
	}
	for _, q := range d.groups.of(p.dgid) {
		if own && q.num == p.SrcQP {
			continue
		}
		q.acquire()
		q.markMemoryUser()
		q.handlePacket(p, now)
		q.transmitAndRelease()
	}
}

// join and leave have nothing to do: the sender finds the members.
func (l inprocLink) join(verbs.GID) error  { return nil }
func (l inprocLink) leave(verbs.GID) error { return nil }

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
			all = l.sendCopy(q.e, p, group) && all
		}
	}
	p.DestQP = verbs.MulticastQPN
	return all
}
