package mapped

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Region is memory that a domain exposes to peers. It implements uct.Mem for self and shm.
//
// Ownership: the memory is released when the region is closed and no key of this process holds
// it. Peers own their mappings of an allocated region.
//
// Concurrency: any goroutine.
type Region struct {
	owner *Owner
	mem   []byte
	flags uct.MemFlags
	kind  Kind
	fd    int // descriptor that a peer maps; -1: none
	free  func() error
	slot  *Slot
	key   PackedKey
	pin   runtime.Pinner

	once sync.Once // guards close
	err  error     // result of close

	mu      sync.Mutex
	closed  bool
	holders int // references: the region itself until closed, and each key
}

var _ uct.Mem = (*Region)(nil)

// Bytes returns the region's memory.
func (r *Region) Bytes() []byte { return r.mem }

// FD returns the descriptor by which a peer maps the region; -1: none. It is valid while the
// region is held.
func (r *Region) FD() int { return r.fd }

// Key returns the region's key.
func (r *Region) Key() PackedKey { return r.key }

// AppendKey appends the packed key.
func (r *Region) AppendKey(b []byte) []byte { return r.key.Append(b) }

// Revoke makes all later accesses of peers fail. Idempotent.
func (r *Region) Revoke() uct.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed { // a closed region's slot may belong to another region
		r.slot.revoke()
	}
	return ucs.OK
}

// Close revokes the region and releases its memory. Allocated memory is released when no key of
// this process holds it; memory of the program when no access is in flight.
//
// Errors: ErrExposed if accesses are still in flight after the time limit. A peer may have
// stopped or died in the middle of one. The memory then stays pinned for the rest of the
// process, and late writes may still change it.
func (r *Region) Close() error {
	r.once.Do(func() {
		r.mu.Lock()
		r.closed = true
		r.slot.revoke()
		r.mu.Unlock()
		var inUse uint64
		if r.kind == Registered {
			inUse = r.slot.drain(r.owner.drain)
		}
		r.owner.mu.Lock()
		delete(r.owner.regions, r.key.Slot)
		r.owner.mu.Unlock()
		if inUse != 0 { // the slot is never used again
			r.err = fmt.Errorf("close region of %d bytes at %#x: %d accesses of peers still under way after %v: %w",
				r.key.Len, r.key.Base, inUse, r.owner.drain, ErrExposed)
			return
		}
		t := r.owner.table
		t.mu.Lock()
		t.reuse = append(t.reuse, r.key.Slot)
		t.mu.Unlock()
		r.err = r.unref()
	})
	return r.err
}

// Hold adds a reference to the memory, which Release removes. It returns false if the region is
// closed.
func (r *Region) Hold() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.holders++
	return true
}

// Release removes the reference of a Hold.
func (r *Region) Release() {
	// There is no caller for the error: Close has returned. Unmapping a mapping does not fail.
	_ = r.unref()
}

// unref removes a reference, and releases the memory with the last one.
func (r *Region) unref() error {
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

// Spec returns the description of the region for Keys.Add of a domain of this process. The
// caller must hold the region.
func (r *Region) Spec() Spec {
	return Spec{
		Base: r.key.Base, Len: r.key.Len, Bytes: r.mem, Flags: r.flags,
		Slot: r.slot, Gen: r.key.Gen, Counted: r.kind == Registered, Release: r.Release,
	}
}

// ErrExposed: peers may still access memory after the time limit.
var ErrExposed = fmt.Errorf("%w: %w", ucs.ErrBufferExposed, ucs.ErrTimeout)

// pinned keeps pinned regions reachable: peers and off-heap records know only their addresses.
// A region whose Close timed out stays in it for good. So does a region that its program never
// closes: a runtime.Pinner that is collected would end the program.
var pinned struct {
	sync.Mutex
	regions map[*Region]struct{}
}

func pin(r *Region) {
	r.pin.Pin(&r.mem[0]) // no effect on memory outside the Go heap
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
