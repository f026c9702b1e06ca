package mapped

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// chunkBytes is the size of one mapping of 1024 records.
const chunkBytes = 64 << 10

// Keys holds the keys that a domain has unpacked. The zero value is empty and ready.
//
// Concurrency: any goroutine. Data paths read records without a lock. A record does not change
// while its key is in use.
type Keys struct {
	copiers atomic.Pointer[[]Copier] // copied on write, indexed by record.copier

	mu          sync.Mutex
	chunks      [][]byte
	free        []*record
	freeCopiers []uint32
	held        map[uct.RKey]Spec
	closed      bool
}

// Spec describes the memory that a key refers to.
type Spec struct {
	// Base is the region's first address in its owner, Len its length in bytes.
	Base, Len uint64
	// Bytes is the region as mapped here. It stays mapped or pinned until Release. It is empty
	// if Copier is set.
	Bytes []byte
	Flags uct.MemFlags
	// Slot holds Gen until the region is revoked.
	Slot *Slot
	Gen  uint64
	// Counted: the owner waits for accesses in flight before it takes Bytes back.
	Counted bool
	// Copier, if not nil, copies instead of loads and stores on Bytes.
	Copier Copier
	// Release is called once, when the key is released or the domain closes.
	Release func()
}

// Add adds a key. On success it takes over s.Release; on an error it does not.
//
// Errors: ucs.ErrInvalid, ucs.ErrNoMemory, ucs.ErrClosed.
func (k *Keys) Add(s Spec) (uct.RKey, error) {
	if s.Copier == nil && uint64(len(s.Bytes)) != s.Len || s.Len == 0 || s.Base > math.MaxUint64-s.Len || s.Slot == nil || s.Gen == 0 {
		return 0, fmt.Errorf("key for %d bytes at %#x: %w", s.Len, s.Base, ucs.ErrInvalid)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return 0, fmt.Errorf("key for %d bytes at %#x: %w", s.Len, s.Base, ucs.ErrClosed)
	}
	if k.held == nil {
		k.held = make(map[uct.RKey]Spec)
	}
	if len(k.free) == 0 {
		chunk, err := MapAnonymous(chunkBytes)
		if err != nil {
			return 0, fmt.Errorf("key for %d bytes at %#x: %w", s.Len, s.Base, err)
		}
		k.chunks = append(k.chunks, chunk)
		for i := chunkBytes/recordBytes - 1; i >= 0; i-- {
			k.free = append(k.free, recordIn(chunk, i))
		}
	}
	rec := k.free[len(k.free)-1]
	k.free = k.free[:len(k.free)-1]

	*rec = record{base: s.Base, size: s.Len, slot: s.Slot, gen: s.Gen, perm: uint32(s.Flags) & permFlags}
	switch {
	case s.Copier != nil:
		rec.perm = rec.perm&^permAtomic | isCopied
	case s.Counted:
		rec.perm |= isCounted
	case s.Len >= 8:
		rec.perm |= rec.perm &^ permPut * (fastGet / permGet)
	}
	if s.Copier != nil {
		// Data paths read the list without a lock: change a copy.
		var list []Copier
		if old := k.copiers.Load(); old != nil {
			list = append(list, *old...)
		}
		rec.copier = uint32(len(list))
		if n := len(k.freeCopiers); n > 0 {
			rec.copier, k.freeCopiers = k.freeCopiers[n-1], k.freeCopiers[:n-1]
			list[rec.copier] = s.Copier
		} else {
			list = append(list, s.Copier)
		}
		k.copiers.Store(&list)
	} else {
		rec.delta = address(s.Bytes) - s.Base
	}
	if s.Len >= 8 {
		rec.last8 = s.Len - 8
	}
	if rec.perm&permPut != 0 && rec.perm&(isCopied|isCounted) == 0 && s.Len >= 8 {
		rec.put8 = s.Len - 7
	}
	k.held[rec.key()] = s
	return rec.key(), nil
}

// Attr returns the operations that a key allows; none if the key is not held.
func (k *Keys) Attr(key uct.RKey) uct.KeyAttr {
	k.mu.Lock()
	s, ok := k.held[key]
	k.mu.Unlock()
	var a uct.KeyAttr
	if !ok {
		return a
	}
	if s.Flags&uct.MemRemotePut != 0 {
		a.Ops |= uct.OpsPut
	}
	if s.Flags&uct.MemRemoteGet != 0 {
		a.Ops |= uct.OpsGet
	}
	if s.Copier != nil {
		return a
	}
	if s.Flags&uct.MemRemoteAtomic != 0 {
		a.Ops |= uct.OpAtomics
		a.Atomic32, a.Atomic64 = uct.AllAtomics, uct.AllAtomics
	}
	// Loads and stores through Bytes check no flag, so they need both.
	if readWrite := uct.MemRemotePut | uct.MemRemoteGet; s.Flags&readWrite == readWrite {
		a.Bytes = s.Bytes
	}
	return a
}

// Release releases a key. It ignores a key that is not held.
func (k *Keys) Release(key uct.RKey) {
	k.mu.Lock()
	s, ok := k.held[key]
	if ok {
		delete(k.held, key)
		rec := recordAt(key)
		if s.Copier != nil {
			list := append([]Copier(nil), *k.copiers.Load()...)
			list[rec.copier] = nil
			k.copiers.Store(&list)
			k.freeCopiers = append(k.freeCopiers, rec.copier)
		}
		*rec = record{} // allows nothing until its next use
		k.free = append(k.free, rec)
	}
	k.mu.Unlock()
	if ok && s.Release != nil {
		s.Release()
	}
}

// Len returns the number of keys held.
func (k *Keys) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

// Close releases the keys still held and unmaps the records. No key of the domain may be used
// afterwards. Idempotent.
func (k *Keys) Close() error {
	k.mu.Lock()
	held, chunks := k.held, k.chunks
	k.held, k.chunks, k.free, k.closed = nil, nil, nil, true
	k.copiers.Store(nil)
	k.mu.Unlock()
	for _, s := range held {
		if s.Release != nil {
			s.Release()
		}
	}
	var first error
	for _, c := range chunks {
		if err := Unmap(c); err != nil && first == nil {
			first = err
		}
	}
	return first
}
