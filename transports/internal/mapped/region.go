package mapped

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Region is memory that a domain lends to peers. It is the uct.Mem of self and
// shm.
//
// Ownership: the memory is given back when the region is closed and no key of
// this process holds it any more. Peers' mappings of an allocated region are
// their own.
//
// Concurrency: any goroutine.
type Region struct {
	owner *Owner
	mem   []byte
	flags uct.MemFlags
	kind  Kind
	fd    int // what a peer maps; -1: nothing
	free  func() error
	slot  *Slot
	key   PackedKey
	pin   runtime.Pinner

	once sync.Once // Close
	err  error     // its answer

	mu      sync.Mutex
	closed  bool
	holders int // the region itself, until closed, and each key
}

var _ uct.Mem = (*Region)(nil)

// Bytes is the region's memory.
func (r *Region) Bytes() []byte { return r.mem }

// FD is the descriptor that a peer maps the region by, -1 where there is none.
// It is valid while the region is held.
func (r *Region) FD() int { return r.fd }

// Key is what the region is known by.
func (r *Region) Key() PackedKey { return r.key }

// AppendKey appends the packed key.
func (r *Region) AppendKey(b []byte) []byte { return r.key.Append(b) }

// Revoke lets no later access in. Idempotent.
func (r *Region) Revoke() uct.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed { // else the slot may be another region's
		r.slot.revoke()
	}
	return ucs.OK
}

// Close revokes the region and gives its memory back: allocated memory as soon
// as no key of this process holds it, memory of the program when the accesses
// under way have ended.
//
// Errors: ErrExposed where they did not end in time: a peer may have stopped in
// the middle, or died there. The memory then stays pinned for the rest of the
// process, and late writes may still land in it.
func (r *Region) Close() error {
	r.once.Do(func() { r.err = r.close() })
	return r.err
}

func (r *Region) close() error {
	r.mu.Lock()
	r.closed = true
	r.slot.revoke()
	r.mu.Unlock()
	var inUse uint64
	if r.kind == Registered {
		inUse = r.slot.drain(r.owner.drain)
	}
	r.owner.forget(r.key.Slot, inUse != 0)
	if inUse != 0 {
		return fmt.Errorf("close region of %d bytes at %#x: %d accesses of peers still under way after %v: %w",
			r.key.Len, r.key.Base, inUse, r.owner.drain, ErrExposed)
	}
	return r.letGo()
}

// Hold keeps the memory until Release; false once the region is closed.
func (r *Region) Hold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.holders++
	return true
}

// Release ends what Hold began.
func (r *Region) Release() {
	// Close has answered its caller already, and unmapping what is mapped does
	// not fail.
	_ = r.letGo()
}

// letGo gives the memory back when nobody holds it any more.
func (r *Region) letGo() error {
	r.mu.Lock()
	r.holders--
	last := r.holders == 0
	r.mu.Unlock()
	if !last {
		return nil
	}
	var err error
	if r.kind == Registered {
		unpin(r)
	} else {
		err = r.free()
	}
	r.mem = nil
	if err = errors.Join(err, r.owner.table.Release()); err != nil {
		return fmt.Errorf("close region at %#x: %w", r.key.Base, err)
	}
	return nil
}

// Spec describes the region to Keys.Add for a domain of this process, which
// must hold it.
func (r *Region) Spec() Spec {
	return Spec{
		Base: r.key.Base, Len: r.key.Len, Bytes: r.mem, Flags: r.flags,
		Slot: r.slot, Gen: r.key.Gen, Counted: r.kind == Registered, Release: r.Release,
	}
}

// ErrExposed: memory could not be taken back from peers in time.
var ErrExposed = fmt.Errorf("%w: %w", ucs.ErrBufferExposed, ucs.ErrTimeout)

// pinned keeps reachable what is pinned: peers and off-heap records know its
// address alone. A region whose Close could not wait any longer stays for good,
// and so does one that its program forgot (a runtime.Pinner that is collected
// ends the program).
var pinned struct {
	sync.Mutex
	regions map[*Region]struct{}
}

func pin(r *Region) {
	r.pin.Pin(&r.mem[0]) // ignores what is not of the Go heap
	pinned.Lock()
	defer pinned.Unlock()
	if pinned.regions == nil {
		pinned.regions = make(map[*Region]struct{})
	}
	pinned.regions[r] = struct{}{}
}

func unpin(r *Region) {
	r.pin.Unpin()
	pinned.Lock()
	delete(pinned.regions, r)
	pinned.Unlock()
}
