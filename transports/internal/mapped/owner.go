package mapped

import (
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// CloseWait is how long Close of registered memory waits for accesses of peers in flight.
const CloseWait = time.Second

// Owner holds the regions that a domain exposes to peers, with their slots.
//
// Concurrency: any goroutine.
type Owner struct {
	id    uct.UUID
	sock  string
	table *Table
	drain time.Duration

	mu      sync.Mutex
	regions map[uint32]*Region
}

// NewOwner returns an owner that takes over table t. Peers request the regions at sock; if it
// is "", only this domain can unpack the keys. drain bounds the wait of Region.Close; 0:
// CloseWait.
func NewOwner(id uct.UUID, sock string, t *Table, drain time.Duration) *Owner {
	if drain <= 0 {
		drain = CloseWait
	}
	return &Owner{id: id, sock: sock, table: t, drain: drain, regions: make(map[uint32]*Region)}
}

// NewID returns a new random identity for a domain.
func NewID() uct.UUID {
	var id uct.UUID
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	return id
}

// Table returns the owner's table.
func (o *Owner) Table() *Table { return o.table }

// Register exposes memory of the program. It is pinned until Close. Memory outside the Go heap
// must stay mapped until then.
func (o *Owner) Register(buf []byte, f uct.MemFlags) (*Region, error) {
	if len(buf) == 0 {
		return nil, fmt.Errorf("register empty buffer: %w", ucs.ErrInvalid)
	}
	r := &Region{owner: o, mem: buf, flags: f, kind: Registered, fd: -1, holders: 1}
	pin(r)
	if err := o.add(r); err != nil {
		unpin(r)
		return nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return r, nil
}

// Adopt exposes mem, which the domain has mapped. free is called once, to unmap it. Peers map
// it by the descriptor fd; -1: they cannot.
func (o *Owner) Adopt(mem []byte, fd int, f uct.MemFlags, free func() error) (*Region, error) {
	r := &Region{owner: o, mem: mem, flags: f, kind: Allocated, fd: fd, free: free, holders: 1}
	if err := o.add(r); err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", len(mem), err)
	}
	return r, nil
}

func (o *Owner) add(r *Region) error {
	slot, s, gen, err := o.table.alloc()
	if err != nil {
		return err
	}
	r.slot = s
	r.key = PackedKey{
		Kind: r.kind, Domain: o.id, Slot: slot, PID: uint32(os.Getpid()), Gen: gen,
		Base: address(r.mem), Len: uint64(len(r.mem)), Flags: r.flags & uct.MemRemote, Socket: o.sock,
	}
	o.mu.Lock()
	o.regions[slot] = r
	o.mu.Unlock()
	return nil
}

// Find returns the region of a slot and generation, with a reference, or nil.
func (o *Owner) Find(slot uint32, gen uint64) *Region {
	o.mu.Lock()
	r := o.regions[slot]
	o.mu.Unlock()
	// A generation belongs to one region, so a later region in the slot is not mistaken for a
	// closed one. A revoked region has no generation.
	if r == nil || gen == 0 || r.slot.gen.Load() != gen || !r.Hold() {
		return nil
	}
	return r
}

// Resolve adds a key of one of the owner's regions to keys. keys may belong to another domain
// of this process.
//
// Errors: ucs.ErrRemoteAccess if the region is closed, revoked or not the one that the key
// describes.
func (o *Owner) Resolve(p *PackedKey, keys *Keys) (uct.RKey, error) {
	r := o.Find(p.Slot, p.Gen)
	if r == nil {
		return 0, fmt.Errorf("%v: region revoked or closed: %w", p, ucs.ErrRemoteAccess)
	}
	if r.key != *p {
		r.Release()
		return 0, fmt.Errorf("%v: the region is %v: %w", p, &r.key, ucs.ErrRemoteAccess)
	}
	k, err := keys.Add(r.Spec())
	if err != nil {
		r.Release()
	}
	return k, err
}

// Len returns the number of open regions.
func (o *Owner) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.regions)
}

// Close releases the table. All regions must be closed before. A closed region stays mapped
// while keys of other domains hold it.
func (o *Owner) Close() error {
	if n := o.Len(); n > 0 {
		return fmt.Errorf("%d regions open: %w", n, ucs.ErrBusy)
	}
	return o.table.Release()
}
