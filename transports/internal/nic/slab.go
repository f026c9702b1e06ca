package nic

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/verbs"
)

// Slab is registered memory of the transport's own, cut into buffers of one size
// with a free list: what was given back last is taken first. The zero Slab has
// none.
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

// Close gives the memory back; nothing of the device may use it any more.
func (s *Slab) Close() error {
	if s.mr == nil {
		return nil
	}
	return errors.Join(s.mr.Close(), mapped.Unmap(s.mem))
}

// CloseUnder is Close, but messages that the layer above has kept stay readable:
// where there are any, the memory stays mapped for good.
func (s *Slab) CloseUnder(kept int) error {
	if kept > 0 {
		return s.mr.Close()
	}
	return s.Close()
}

// Free is the number of buffers that are not taken.
func (s *Slab) Free() int { return len(s.free) }

// Take takes a buffer; false: none is left.
//
// hot: BenchmarkSlab.
func (s *Slab) Take() (uint32, bool) {
	n := len(s.free) - 1
	if n < 0 {
		return 0, false
	}
	i := s.free[n]
	s.free = s.free[:n]
	return i, true
}

// Give gives a buffer back.
func (s *Slab) Give(i uint32) { s.free = append(s.free, i) }

// Mem is all buffers, one after the other.
func (s *Slab) Mem() []byte { return s.mem }

// Offset is where buffer i begins in Mem.
func (s *Slab) Offset(i uint32) int { return int(i) * s.size }

// Bytes is buffer i.
func (s *Slab) Bytes(i uint32) []byte {
	at := int(i) * s.size
	return s.mem[at : at+s.size : at+s.size]
}

// Piece names the first n bytes of buffer i in a work request.
func (s *Slab) Piece(i uint32, n int) verbs.SGE {
	return verbs.SGE{Addr: s.addr + uint64(int(i)*s.size), Len: uint32(n), LKey: s.lkey}
}
