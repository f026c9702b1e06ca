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

// CloseWait is how long closing memory of the program waits for accesses of
// peers under way.
const CloseWait = time.Second

// Owner is the lending side of a domain: its regions and their slots.
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

// NewOwner makes an owner over a table, which it takes over. sock is where
// peers ask for the regions, "" where keys are valid in this domain alone. drain
// bounds the wait of Region.Close; 0: CloseWait.
func NewOwner(id uct.UUID, sock string, t *Table, drain time.Duration) *Owner {
	if drain <= 0 {
		drain = CloseWait
	}
	return &Owner{id: id, sock: sock, table: t, drain: drain, regions: make(map[uint32]*Region)}
}

// NewID makes a domain's identity.
func NewID() uct.UUID {
	var id uct.UUID
	_, _ = rand.Read(id[:]) // never fails, see crypto/rand
	return id
}

// Table is the owner's table.
func (o *Owner) Table() *Table { return o.table }

// Register lends memory of the program, pinned until Close. Memory outside the
// Go heap must stay mapped until then.
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

// Adopt lends mem, mapped by the domain and given back by free, once. fd is
// what peers map it by, or -1.
func (o *Owner) Adopt(mem []byte, fd int, f uct.MemFlags, free func() error) (*Region, error) {
	r := &Region{owner: o, mem: mem, flags: f, kind: Allocated, fd: fd, free: free, holders: 1}
	if err := o.add(r); err != nil {
		return nil, fmt.Errorf("allocate %d bytes: %w", len(mem), err)
	}
	return r, nil
}

func (o *Owner) add(r *Region) error {
	slot, s, gen, err := o.table.take()
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

// Find gives the region of a slot and generation, held, or nil.
func (o *Owner) Find(slot uint32, gen uint64) *Region {
	o.mu.Lock()
	r := o.regions[slot]
	o.mu.Unlock()
	// Generations name regions, so a region closed meanwhile is not mistaken for
	// its heir. A revoked one has none.
	if r == nil || gen == 0 || r.slot.gen.Load() != gen || !r.Hold() {
		return nil
	}
	return r
}

// Resolve makes a key of one of the owner's regions in keys, which may be those
// of another domain of this process.
//
// Errors: ucs.ErrRemoteAccess where the region is gone, revoked or not the one
// that the key describes.
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

func (o *Owner) forget(slot uint32, inUse bool) {
	o.mu.Lock()
	delete(o.regions, slot)
	o.mu.Unlock()
	o.table.giveBack(slot, inUse)
}

// Len is the number of regions not closed.
func (o *Owner) Len() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.regions)
}

// Close lets go of the table. Regions must be closed before; those that keys of
// other domains hold stay until they are released.
func (o *Owner) Close() error {
	if n := o.Len(); n > 0 {
		return fmt.Errorf("%d regions open: %w", n, ucs.ErrBusy)
	}
	return o.table.Release()
}
