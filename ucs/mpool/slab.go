package mpool

import (
	"errors"
	"fmt"
	"reflect"
)

const (
	chunkBits = 8
	// ChunkSlots is how many slots a slab grows by.
	ChunkSlots = 1 << chunkBits
	chunkMask  = ChunkSlots - 1
)

// None is the index of no slot.
const None = ^uint32(0)

// ErrPointers: the type of a slab's slots holds pointers.
var ErrPointers = errors.New("slot type holds pointers")

// taken stands in the free list's link of a slot that is not in it.
const taken = None - 1

// slot is a place for a T.
type slot[T any] struct {
	value T
	gen   uint32 // counts the releases
	next  uint32 // in the free list; taken
}

// Slab hands out slots by index. It grows by whole chunks that never move, so a
// pointer to a slot stays good; it never shrinks. The slot given back last is
// taken first, since its lines are still in the cache.
//
// Concurrency: one goroutine at a time.
//
// hot: BenchmarkTakeRelease
type Slab[T any] struct {
	chunks []*[ChunkSlots]slot[T]
	free   uint32
	max    int
}

// New makes an empty slab that grows to at most limit slots; 0: no limit but
// that of the index.
//
// Errors: ErrPointers, if a T, which the collector is not to look at, holds any.
func New[T any](limit int) (*Slab[T], error) {
	if t := reflect.TypeFor[T](); hasPointers(t) {
		return nil, fmt.Errorf("slab of %v: %w", t, ErrPointers)
	}
	if limit <= 0 || limit > int(None>>1) {
		limit = int(None >> 1)
	}
	return &Slab[T]{free: None, max: limit}, nil
}

// Take takes a slot and gives its index, or None when the limit is reached. The
// slot holds what its last user left there. It allocates only when all slots
// are taken and a chunk is added.
func (s *Slab[T]) Take() uint32 {
	i := s.free
	if i == None {
		return s.takeSlow()
	}
	p := s.slot(i)
	s.free = p.next
	p.next = taken
	return i
}

//go:noinline
func (s *Slab[T]) takeSlow() uint32 {
	base := len(s.chunks) << chunkBits
	room := min(s.max-base, ChunkSlots)
	if room <= 0 {
		return None
	}
	chunk := new([ChunkSlots]slot[T])
	s.chunks = append(s.chunks, chunk)
	for k := range room {
		chunk[k].next = uint32(base + k + 1)
	}
	chunk[room-1].next = None
	s.free = chunk[0].next
	chunk[0].next = taken
	return uint32(base)
}

// Release gives slot i back. Its generation moves on, so that Lookup no longer
// knows the handles made for it. Releasing a slot that is not taken is a broken
// invariant and panics: the free list would hand it out twice.
func (s *Slab[T]) Release(i uint32) {
	p := s.slot(i)
	if p.next != taken {
		panic("mpool: release of a free slot")
	}
	p.gen++
	p.next = s.free
	s.free = i
}

// At is slot i, which must have been handed out once. The pointer stays good
// for the life of the slab; what it points to is another's after Release.
func (s *Slab[T]) At(i uint32) *T { return &s.slot(i).value }

func (s *Slab[T]) slot(i uint32) *slot[T] { return &s.chunks[i>>chunkBits][i&chunkMask] }

// Gen is slot i's generation: how often it was released.
func (s *Slab[T]) Gen(i uint32) uint32 { return s.slot(i).gen }

// Handle names slot i as it is taken now: its generation in the high half, its
// index plus one in the low one, so that no handle is zero.
func (s *Slab[T]) Handle(i uint32) uint64 { return uint64(s.Gen(i))<<32 | uint64(i+1) }

// Lookup finds the slot that a handle names; false if it has been released
// since, or the handle never came from this slab. Any number may be asked.
func (s *Slab[T]) Lookup(h uint64) (i uint32, ok bool) {
	i = uint32(h) - 1
	if int(i>>chunkBits) >= len(s.chunks) {
		return None, false
	}
	p := s.slot(i)
	return i, p.next == taken && p.gen == uint32(h>>32)
}

// Used counts the slots that are taken. Cost: O(Cap), so that Take and Release
// need not count.
func (s *Slab[T]) Used() (n int) {
	for _, chunk := range s.chunks {
		for k := range chunk {
			if chunk[k].next == taken {
				n++
			}
		}
	}
	return n
}

// Cap is how many slots there is memory for.
func (s *Slab[T]) Cap() int { return min(len(s.chunks)<<chunkBits, s.max) }

func hasPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Array:
		return t.Len() > 0 && hasPointers(t.Elem())
	case reflect.Struct:
		for field := range t.Fields() {
			if hasPointers(field.Type) {
				return true
			}
		}
		return false
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr,
		reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return false
	}
	return true
}
