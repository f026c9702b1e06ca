package nic

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/verbs"
)

// Slab is registered memory of a transport, divided into buffers of one size with a free list:
// last in, first out. The zero Slab has no buffers.
//
// Concurrency: one goroutine at a time.
type Slab struct {
	mem  []byte
	mr   verbs.MR
	addr uint64
	lkey uint32
	size int
	free []uint32
}

// NewSlab maps and registers n buffers of size bytes.
func NewSlab(pd verbs.PD, n, size int) (*Slab, error) {
	mem, err := mapped.MapAnonymous(n * size)
	if err != nil {
		return nil, fmt.Errorf("%d buffers of %d bytes: %w", n, size, err)
	}
	mr, err := pd.Register(mem, verbs.MRConfig{Access: verbs.LocalWrite})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%d buffers of %d bytes: %w", n, size, err), mapped.Unmap(mem))
	}
	s := &Slab{mem: mem, mr: mr, addr: mr.Addr(), lkey: mr.LKey(), size: size, free: make([]uint32, n)}
	for i := range s.free {
		s.free[i] = uint32(n - 1 - i)
	}
	return s, nil
}

// Close unmaps the memory. The device must not use it any more.
func (s *Slab) Close() error {
	if s.mr == nil {
		return nil
	}
	return errors.Join(s.mr.Close(), mapped.Unmap(s.mem))
}

// CloseRetained is Close, except that the memory stays mapped for good if kept is not 0: the layer
// above retains that many messages and can still read them.
func (s *Slab) CloseRetained(retained int) error {
	if retained > 0 {
		return s.mr.Close()
	}
	return s.Close()
}

// Free returns the number of free buffers.
func (s *Slab) Free() int { return len(s.free) }

// Take takes a buffer from the free list; false: there is none.
//
//hot:bench BenchmarkSlab
func (s *Slab) Take() (uint32, bool) {
	n := len(s.free) - 1
	if n < 0 {
		return 0, false
	}
	i := s.free[n]
	s.free = s.free[:n]
	return i, true
}

// Put returns a buffer to the free list.
func (s *Slab) Put(i uint32) { s.free = append(s.free, i) }

// Mem returns the memory of all buffers.
func (s *Slab) Mem() []byte { return s.mem }

// Offset returns the offset of buffer i in Mem.
func (s *Slab) Offset(i uint32) int { return int(i) * s.size }

// Bytes returns buffer i.
func (s *Slab) Bytes(i uint32) []byte {
	at := int(i) * s.size
	return s.mem[at : at+s.size : at+s.size]
}

// SGE returns the scatter/gather entry for the first n bytes of buffer i.
func (s *Slab) SGE(i uint32, n int) verbs.SGE {
	return verbs.SGE{Addr: s.addr + uint64(int(i)*s.size), Len: uint32(n), LKey: s.lkey}
}
