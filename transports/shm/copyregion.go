package shm

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// Memory that was allocated by the domain is mapped by the peers that copy from it or to it. The owner
// sends it in COPY_REGION before it names it in a copy table. Both sides keep the last maxRegions of each direction,
// and the peer unmaps a region soon after its owner has closed it: the generation in its slot is another one then.

// maxRegions is the number of regions of one connection that the peer keeps, and maxRegion the number of bytes of one,
// which leaves most of the address space.
const (
	maxRegions = 32
	maxRegion  = 1 << 40
)

// copyRegion is a region of the peer as mapped here, or one of this side's that the peer maps.
type copyRegion struct {
	regionRef
	base, length uint64         // in the owner's process
	seg          *shmem.Segment // nil: not mapped, or not any more
}

// regions holds the regions of one direction of a connection, oldest first.
type regions struct {
	list []copyRegion
	last int // index of the region that was found last
}

// find returns the region, nil if it is not in the list.
func (x *regions) find(ref regionRef) *copyRegion {
	if x.last < len(x.list) && x.list[x.last].regionRef == ref {
		return &x.list[x.last]
	}
	for i := range x.list {
		if x.list[i].regionRef == ref {
			x.last = i
			return &x.list[i]
		}
	}
	return nil
}

// add appends r, and removes the oldest if there are maxRegions.
func (x *regions) add(r copyRegion) {
	if len(x.list) == maxRegions {
		x.list[0].unmap()
		x.list = slices.Delete(x.list, 0, 1)
	}
	x.list = append(x.list, r)
}

func (r *copyRegion) unmap() {
	if r.seg != nil {
		_ = r.seg.Close() // a valid unmap does not fail
		r.seg = nil
	}
}

// share returns the name of m for the peer, after it has sent the peer the region. It returns the zero value if the
// peer cannot map m, or may not.
func (e *ep) share(m uct.Mem) regionRef {
	r, ok := m.(*mapped.Region)
	if !ok || e.f.copies&copiesByMapping == 0 {
		return regionRef{}
	}
	k := r.Key()
	if k.Kind != mapped.Allocated || k.Len > maxRegion || k.Flags&(uct.MemRemoteGet|uct.MemRemotePut) != uct.MemRemoteGet|uct.MemRemotePut {
		return regionRef{}
	}
	ref := regionRef{slot: k.Slot, gen: k.Gen}
	if e.copies.shared.find(ref) != nil {
		return ref
	}
	e.f.d.mu.Lock()
	x := e.f.d.exporter
	e.f.d.mu.Unlock()
	if x == nil || e.sock == nil || e.Life != conn.Open {
		return regionRef{}
	}
	h := e.f.newConnMsg(kindCopyRegion, e.Slot())
	h.region = copyRegion{regionRef: ref, base: k.Base, length: k.Len}
	if !r.Hold() { // its descriptor is valid until Release
		return regionRef{}
	}
	defer r.Release()
	if err := e.sock.Send(h.append(nil), r.FD(), x.table.FD()); err != nil {
		e.f.d.logSend("send a region", err)
		return regionRef{}
	}
	e.copies.shared.add(h.region)
	return ref
}

// handleCopyRegion maps a region of the peer. It owns fds. A region that cannot be mapped is copied from and to in
// other ways.
func (e *ep) handleCopyRegion(r copyRegion, fds []int) error {
	defer func() { shmem.CloseFDs(fds...) }()
	if len(fds) != 2 || r.gen == 0 || r.length == 0 || r.length > maxRegion || e.copies.mapped.find(r.regionRef) != nil {
		return fmt.Errorf("COPY_REGION with %d descriptors and %d bytes does not fit here: %w", len(fds), r.length, ucs.ErrInvalid)
	}
	if e.f.copies&copiesByMapping == 0 {
		return nil
	}
	if e.copies.keys == nil {
		table, err := mapGranted(&fds[1], tableBytes)
		if err != nil && !lacksMemory(err) {
			return fmt.Errorf("peer's key table: %w", err)
		}
		e.copies.keys = table
	}
	if e.copies.keys != nil {
		seg, err := mapGranted(&fds[0], int(r.length))
		if err != nil && !lacksMemory(err) {
			return fmt.Errorf("peer's region: %w", err)
		}
		r.seg = seg
	}
	e.copies.mapped.add(r)
	e.f.mapping = append(without(e.f.mapping, e), e)
	return nil
}

// peerMemory returns n bytes at address addr of the peer, in region ref, as mapped here. It returns nil if they are not
// mapped, and RemoteAccess if the region was closed or does not have them.
func (e *ep) peerMemory(ref regionRef, addr, n uint64) ([]byte, uct.Status) {
	if ref == (regionRef{}) || e.f.copies&copiesByMapping == 0 {
		return nil, ucs.OK
	}
	r := e.copies.mapped.find(ref)
	if r == nil {
		if e.readSocket(); e.copies.mapped.find(ref) == nil {
			return nil, ucs.OK
		}
		r = e.copies.mapped.find(ref)
	}
	off := addr - r.base
	if !e.holds(r) || off > r.length || n > r.length-off {
		return nil, ucs.RemoteAccess
	}
	if r.seg == nil {
		return nil, ucs.OK
	}
	return r.seg.Bytes()[off:][:n], ucs.OK
}

// lacksMemory reports whether a mapping failed because this process may have no more of them. The messages are copied
// in other ways then.
func lacksMemory(err error) bool {
	return errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENFILE)
}

// holds reports whether the owner of r has not closed it, as far as that is known.
func (e *ep) holds(r *copyRegion) bool {
	if e.copies.keys == nil {
		return true
	}
	s := mapped.SlotAt(e.copies.keys.Bytes(), r.slot)
	return s != nil && s.Holds(r.gen)
}

// unmapClosed unmaps the regions that their owners have closed.
func (f *iface) unmapClosed() {
	for _, e := range f.mapping {
		for i := range e.copies.mapped.list {
			if r := &e.copies.mapped.list[i]; r.seg != nil && !e.holds(r) {
				r.unmap()
			}
		}
	}
}
