package shm

import (
	"fmt"
	"sync"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// remote is a domain of another process of which this domain holds keys. It holds that
// domain's key table and the regions mapped from it.
//
// Lock order: asking before mu. Only asking is held during a request to the owner, so
// that keys can be released meanwhile.
type remote struct {
	d    *domain
	id   uct.UUID
	refs int // keys held or being unpacked; guarded by d.mu

	requestMu sync.Mutex

	mu         sync.Mutex // guards the fields below
	table      *shmem.Segment
	regions    map[remoteID]*remoteRegion
	conn       *shmem.Conn // nil if far is 0; it hangs up when the owner exits
	cmaRegions int         // regions accessed by cross-memory attach
}

// remoteID identifies a region in its domain.
type remoteID struct {
	slot uint32
	gen  uint64
}

// remoteRegion is a region of a remote, mapped or accessed by cross-memory attach.
type remoteRegion struct {
	key  mapped.PackedKey
	seg  *shmem.Segment // nil: accessed through far
	cma  *cmaRegion
	refs int
}

// remote returns the remote that owns region p, with one more reference.
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

// releaseRemote releases a reference. The last one unmaps the key table.
func (d *domain) releaseRemote(r *remote) {
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
		_ = r.table.Close() // a valid unmap does not fail
	}
}

// unpack makes a key of region p. On success the key holds the caller's reference to r.
func (r *remote) unpack(p *mapped.PackedKey) (uct.RKey, error) {
	g, slot, err := r.region(p)
	if err != nil {
		return 0, err
	}
	s := mapped.Spec{
		Base: p.Base, Len: p.Len, Flags: p.Flags, Slot: slot, Gen: p.Gen,
		Release: func() { r.release(g); r.d.releaseRemote(r) },
	}
	if g.seg != nil {
		s.Bytes = g.seg.Bytes()
	} else {
		s.Copier = g.cma
	}
	k, err := r.d.keys.Add(s)
	if err != nil {
		r.release(g)
	}
	return k, err
}

// region returns region p if it is held already. Otherwise it requests it from the owner.
func (r *remote) region(p *mapped.PackedKey) (*remoteRegion, *mapped.Slot, error) {
	r.requestMu.Lock()
	defer r.requestMu.Unlock()
	if g, slot, err := r.lookup(p); g != nil || err != nil {
		return g, slot, err
	}
	r.mu.Lock()
	wantTable := r.table == nil
	r.mu.Unlock()
	grant, err := requestGrant(p, wantTable, requestTimeout)
	if err != nil {
		return nil, nil, err
	}
	defer grant.close()
	return r.addRegion(p, &grant)
}

// lookup returns region p if it is held already, and all nil if not. It returns an error
// without a request if the key table shows that the region was revoked.
func (r *remote) lookup(p *mapped.PackedKey) (*remoteRegion, *mapped.Slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.table == nil {
		return nil, nil, nil
	}
	slot := mapped.SlotAt(r.table.Bytes(), p.Slot)
	if slot == nil || !slot.Holds(p.Gen) {
		return nil, nil, keyStatusErrs[keyRevoked]
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

// addRegion adds region p from the owner's grant. It maps the key table if need be.
func (r *remote) addRegion(p *mapped.PackedKey, grant *keyGrant) (*remoteRegion, *mapped.Slot, error) {
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
		g.cma, err = r.newCMALocked(p, slot, grant)
	}
	if err != nil {
		return nil, nil, err
	}
	r.regions[remoteID{p.Slot, p.Gen}] = g
	return g, slot, nil
}

// mapGranted maps descriptor *fd and closes it: the mapping suffices. Once mapped, *fd is -1.
func mapGranted(fd *int, n int) (*shmem.Segment, error) {
	seg, err := shmem.Map(*fd, n)
	if err != nil {
		return nil, err
	}
	*fd = -1
	if err := seg.CloseFD(); err != nil {
		_ = seg.Close() // the first error is returned
		return nil, err
	}
	return seg, nil
}

// release releases a reference to region g.
func (r *remote) release(g *remoteRegion) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if g.refs--; g.refs > 0 {
		return
	}
	delete(r.regions, remoteID{g.key.Slot, g.key.Gen})
	if g.seg != nil {
		_ = g.seg.Close() // a valid unmap does not fail
		return
	}
	if r.cmaRegions--; r.cmaRegions == 0 {
		_ = r.conn.Close() // cannot fail: no unsent data
		r.conn = nil
	}
}
