package soft

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// keySpace gives out keys of objects: index<<8 | version, under a mask of the
// device, so that they look random. The version goes on by an odd step whenever an
// index is used again: a stale key finds nothing, and comes back after 256 uses of
// its place at the earliest.
//
// mu guards it and the slots that go with it. It is taken last: an engine that
// holds a queue pair invalidates keys.
type keySpace struct {
	mask     uint32 // never changes
	mu       sync.Mutex
	step     uint8    // of versions
	versions []uint8  // the last of each index
	free     []uint32 // indices
}

// init gives the space its secrets.
func (s *keySpace) init() {
	var r [5]byte
	_, _ = rand.Read(r[:]) // never fails
	s.mask, s.step = binary.LittleEndian.Uint32(r[:]), r[4]|1
}

// minKeys is how many indices there are at first.
const minKeys = 16

func (s *keySpace) index(key uint32) uint32 { return (key ^ s.mask) >> 8 }

// alloc gives a new key; it is never 0, which programs take for none.
func (s *keySpace) alloc() uint32 {
	if len(s.free) == 0 {
		s.grow()
	}
	var r [4]byte
	_, _ = rand.Read(r[:]) // never fails
	at := binary.LittleEndian.Uint32(r[:]) % uint32(len(s.free))
	i := s.free[at]
	s.free[at] = s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	for {
		s.versions[i] += s.step
		if k := (i<<8 | uint32(s.versions[i])) ^ s.mask; k != 0 {
			return k
		}
	}
}

// grow doubles the indices. Their first versions are random.
func (s *keySpace) grow() {
	old := len(s.versions)
	s.versions = append(s.versions, make([]uint8, max(minKeys, old))...)
	_, _ = rand.Read(s.versions[old:]) // never fails
	for i := old; i < len(s.versions); i++ {
		s.free = append(s.free, uint32(i))
	}
}

// release makes the key's index free for another.
func (s *keySpace) release(key uint32) { s.free = append(s.free, s.index(key)) }

// slots are objects by index, found without a lock.
type slots[T any] struct {
	all atomic.Pointer[[]atomic.Pointer[T]]
}

// at gives the object with that index; nil: there is none.
func (s *slots[T]) at(i uint32) *T {
	p := s.all.Load()
	if p == nil || uint64(i) >= uint64(len(*p)) {
		return nil
	}
	return (*p)[i].Load()
}

// set enters v, under the lock of the key space. Who found the table before
// may still see what was there: MR.Close waits for them.
func (s *slots[T]) set(i uint32, v *T) {
	p := s.all.Load()
	if p == nil || int(i) >= len(*p) {
		size := minKeys
		for size <= int(i) {
			size *= 2
		}
		grown := make([]atomic.Pointer[T], size)
		if p != nil {
			for j := range *p {
				grown[j].Store((*p)[j].Load())
			}
		}
		p = &grown
		s.all.Store(p)
	}
	(*p)[i].Store(v)
}
