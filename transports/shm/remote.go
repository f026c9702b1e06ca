package shm

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// remote is a domain of another process, as far as keys of it are held: its
// table and the regions of it that are mapped here.
//
// Lock order: asking before mu. The owner is waited for under asking alone, so
// that keys can be released meanwhile.
type remote struct {
	d    *domain
	id   uct.UUID
	refs int // keys held or being unpacked; guarded by d.mu

	asking sync.Mutex

	mu      sync.Mutex // guards the rest
	table   *shmem.Segment
	regions map[remoteID]*remoteRegion
	conn    *shmem.Conn // kept while far regions are held: it ends with the owner
	far     int         // how many of them
}

type remoteID struct {
	slot uint32
	gen  uint64
}

// remoteRegion is a region mapped here, or one to be copied from and to.
type remoteRegion struct {
	key  mapped.PackedKey
	seg  *shmem.Segment // nil: far
	far  *farRegion
	refs int
}

// remote gives the domain that p belongs to, with one more reference.
func (d *domain) remote(p *mapped.PackedKey) (*remote, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ucs.ErrClosed
	}
	r := d.remotes[p.Domain]
	if r == nil {
		r = &remote{d: d, id: p.Domain, regions: make(map[remoteID]*remoteRegion)}
		d.remotes[p.Domain] = r
	}
	r.refs++
	return r, nil
}

// dropRemote gives a reference back; with the last one all goes.
func (d *domain) dropRemote(r *remote) {
	d.mu.Lock()
	r.refs--
	last := r.refs == 0
	if last {
		delete(d.remotes, r.id)
	}
	d.mu.Unlock()
	if !last {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table != nil {
		_ = r.table.Close() // unmapping what is mapped does not fail
	}
}

// unpack makes a key of region p. On success the key holds the caller's
// reference of r.
func (r *remote) unpack(p *mapped.PackedKey) (uct.RKey, error) {
	g, slot, err := r.region(p)
	if err != nil {
		return 0, err
	}
	s := mapped.Spec{
		Base: p.Base, Len: p.Len, Flags: p.Flags, Slot: slot, Gen: p.Gen,
		Release: func() { r.release(g); r.d.dropRemote(r) },
	}
	if g.seg != nil {
		s.Bytes = g.seg.Bytes()
	} else {
		s.Far = g.far
	}
	k, err := r.d.keys.Add(s)
	if err != nil {
		r.release(g)
	}
	return k, err
}

// region finds p among those held, or asks the owner for it.
func (r *remote) region(p *mapped.PackedKey) (*remoteRegion, *mapped.Slot, error) {
	r.asking.Lock()
	defer r.asking.Unlock()
	if g, slot, err := r.known(p); g != nil || err != nil {
		return g, slot, err
	}
	r.mu.Lock()
	wantTable := r.table == nil
	r.mu.Unlock()
	grant, err := askOwner(p, wantTable, askTimeout)
	if err != nil {
		return nil, nil, err
	}
	defer grant.close()
	return r.adopt(p, &grant)
}

// known finds p among the regions held; all nil where it is not. A region that
// the table says is revoked need not be asked for.
func (r *remote) known(p *mapped.PackedKey) (*remoteRegion, *mapped.Slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil {
		return nil, nil, nil
	}
	slot := mapped.SlotAt(r.table.Bytes(), p.Slot)
	if slot == nil || !slot.Holds(p.Gen) {
		return nil, nil, answerErrs[answerGone]
	}
	g := r.regions[remoteID{p.Slot, p.Gen}]
	if g == nil {
		return nil, nil, nil
	}
	if g.key != *p {
		return nil, nil, fmt.Errorf("the region is %v: %w", &g.key, ucs.ErrRemoteAccess)
	}
	g.refs++
	return g, slot, nil
}

// adopt takes over what the owner granted.
func (r *remote) adopt(p *mapped.PackedKey, grant *keyGrant) (*remoteRegion, *mapped.Slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil {
		seg, err := mapGranted(&grant.table, tableBytes)
		if err != nil {
			return nil, nil, fmt.Errorf("key table: %w", err)
		}
		r.table = seg
	}
	slot := mapped.SlotAt(r.table.Bytes(), p.Slot)
	if slot == nil {
		return nil, nil, fmt.Errorf("%w: slot %d", mapped.ErrKey, p.Slot)
	}
	g := &remoteRegion{key: *p, refs: 1}
	var err error
	if p.Kind == mapped.Allocated {
		g.seg, err = mapGranted(&grant.region, int(p.Len))
	} else {
		g.far, err = r.newFarLocked(p, slot, grant)
	}
	if err != nil {
		return nil, nil, err
	}
	r.regions[remoteID{p.Slot, p.Gen}] = g
	return g, slot, nil
}

// mapGranted maps a descriptor and gives it back: the mapping is enough.
func mapGranted(fd *int, n int) (*shmem.Segment, error) {
	seg, err := shmem.Map(*fd, n)
	if err != nil {
		return nil, err
	}
	*fd = -1
	if err := seg.CloseFD(); err != nil {
		_ = seg.Close() // the first error tells
		return nil, err
	}
	return seg, nil
}

// release gives one reference of a region back.
func (r *remote) release(g *remoteRegion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.refs--; g.refs > 0 {
		return
	}
	delete(r.regions, remoteID{g.key.Slot, g.key.Gen})
	if g.seg != nil {
		_ = g.seg.Close() // unmapping what is mapped does not fail
		return
	}
	if r.far--; r.far == 0 {
		_ = r.conn.Close() // a socket without unsent data
		r.conn = nil
	}
}
