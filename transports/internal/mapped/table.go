package mapped

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Table holds the slots of a domain's regions, in memory that peers may map.
//
// Concurrency: any goroutine.
//
// Ownership: the memory is freed when the domain has released the table and no held region has
// a slot in it.
type Table struct {
	mem  []byte
	free func() error

	mu      sync.Mutex
	next    uint32 // first slot that was never used
	reuse   []uint32
	holders int // references: the domain, and each region
}

// NewTable returns a table in mem, which is zeroed, page-aligned and outside the Go heap.
// release frees mem; it is called once.
func NewTable(mem []byte, release func() error) *Table {
	return &Table{mem: mem, free: release, holders: 1}
}

// Bytes returns the table's memory.
func (t *Table) Bytes() []byte { return t.mem }

// alloc allocates a slot and stores a new generation in it. The generation is random, so that a
// key of an earlier region in the slot does not match.
func (t *Table) alloc() (i uint32, s *Slot, gen uint64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.reuse); n > 0 {
		i, t.reuse = t.reuse[n-1], t.reuse[:n-1]
	} else {
		i = t.next
	}
	s = SlotAt(t.mem, i)
	if s == nil {
		return 0, nil, 0, fmt.Errorf("more than %d regions: %w", len(t.mem)/SlotBytes, ucs.ErrNoResource)
	}
	if i == t.next {
		t.next++
	}
	t.holders++
	var b [8]byte
	for gen == 0 { // 0: revoked
		_, _ = rand.Read(b[:]) // never fails, see crypto/rand
		gen = binary.LittleEndian.Uint64(b[:])
	}
	s.gen.Store(gen)
	return i, s, gen, nil
}

// Release removes a reference, and frees the memory with the last one.
func (t *Table) Release() error {
	t.mu.Lock()
	t.holders--
	last := t.holders == 0
	t.mu.Unlock()
	if !last || t.free == nil {
		return nil
	}
	return t.free()
}

// revoke makes all later accesses fail. The store pairs with the loads of the generation in
// record.check and Slot.enter.
func (s *Slot) revoke() { s.gen.Store(0) }

// drain waits until no counted access is in flight, for at most limit. It returns the number of
// those that remain. It sleeps, so it is for the control path only.
func (s *Slot) drain(limit time.Duration) uint64 {
	n := s.inUse.Load()
	if n == 0 {
		return 0
	}
	const most = time.Millisecond
	for end, nap := ucs.Now().Add(limit), time.Microsecond; n != 0 && ucs.Now().Before(end); n = s.inUse.Load() {
		time.Sleep(nap)
		nap = min(2*nap, most)
	}
	return n
}

// Holds reports whether the slot's region has generation gen.
func (s *Slot) Holds(gen uint64) bool { return s.gen.Load() == gen }
