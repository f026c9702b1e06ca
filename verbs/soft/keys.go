package soft

import (
	"crypto/rand"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// keySpace allocates the keys of objects: index<<8 | version, XORed with a random mask
// of the device. The version advances by an odd step each time that an index is reused.
// So a stale key finds nothing, until its index has been reused 256 times.
//
// mu guards it and the slots that belong to it. It is the last lock in the lock order:
// engines invalidate keys while they own a queue pair.
type keySpace struct {
	mask        uint32 // constant after init
	mu          sync.Mutex
	versionStep uint8    // of versions
	versions    []uint8  // last version of each index
	free        []uint32 // free indices
}

// init sets the random mask and step.
func (s *keySpace) init() {
	var r [5]byte
	_, _ = rand.Read(r[:]) // never fails
	s.mask, s.versionStep = binary.LittleEndian.Uint32(r[:]), r[4]|1
}

// minKeys is the initial number of indices.
const minKeys = 16

func (s *keySpace) index(key uint32) uint32 { return (key ^ s.mask) >> 8 }

// alloc returns a new key. It is never 0, which programs use for no key.
func (s *keySpace) alloc() uint32 {
	if len(s.free) == 0 { // double the number of indices; first versions are random
		old := len(s.versions)
		s.versions = append(s.versions, make([]uint8, max(minKeys, old))...)
		_, _ = rand.Read(s.versions[old:]) // never fails
		for i := old; i < len(s.versions); i++ {
			s.free = append(s.free, uint32(i))
		}
	}
	var r [4]byte
	_, _ = rand.Read(r[:]) // never fails
	at := binary.LittleEndian.Uint32(r[:]) % uint32(len(s.free))
	i := s.free[at]
	s.free[at] = s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	for {
		s.versions[i] += s.versionStep
		if k := (i<<8 | uint32(s.versions[i])) ^ s.mask; k != 0 {
			return k
		}
	}
}

// release frees the index of key.
func (s *keySpace) release(key uint32) { s.free = append(s.free, s.index(key)) }

// slots stores objects by index. Lookup takes no lock.
type slots[T any] struct {
	all atomic.Pointer[[]atomic.Pointer[T]]
}

// at returns the object with index i, or nil.
func (s *slots[T]) at(i uint32) *T {
	p := s.all.Load()
	if p == nil || uint64(i) >= uint64(len(*p)) {
		return nil
	}
	return (*p)[i].Load()
}

// set stores v under the lock of the key space. A reader that loaded the table before
// may still find the old object; MR.Close waits for such readers.
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
