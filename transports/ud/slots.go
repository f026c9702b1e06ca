package ud

import (
	"errors"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/verbs"
)

const (
	// smallLen is the size of a short message's memory with its head: the long ones'
	// lie a page apart, and a window of them does not fit the nearest cache.
	smallLen = 128
	// ownSlots are the short ones that messages do not get: those may wait for flows
	// that open only by a packet of ours.
	ownSlots = 8
	// longBit marks the slots of long messages.
	longBit = 1 << 30
)

// slots is the memory of what is sent, by arq's numbers of slots. It has none before
// stock, and is then only stocked or closed.
type slots struct {
	small, long *nic.Slab
	// posted is, by slot, the last work request that reads it; lens is how long the
	// packet is.
	posted [2][]uint64
	lens   [2][]uint16
}

// stock makes the memory of n short and n long messages, if there is none yet.
func (s *slots) stock(pd verbs.PD, n, packet int) error {
	if len(s.posted[0]) > 0 {
		return nil
	}
	small, err := nic.NewSlab(pd, n+ownSlots, smallLen)
	if err != nil {
		return err
	}
	long, err := nic.NewSlab(pd, n, stride(packet))
	if err != nil {
		return errors.Join(err, small.Close())
	}
	s.small, s.long = small, long
	for i := range s.posted {
		s.posted[i], s.lens[i] = make([]uint64, n+ownSlots), make([]uint16, n+ownSlots)
	}
	return nil
}

// stride is a buffer's size for n bytes: whole cache lines, an odd number of them,
// so that buffers do not fall on the same sets.
func stride(n int) int { return ((n+63)/64 | 1) * 64 }

func (s *slots) close() (err error) {
	for _, b := range []*nic.Slab{s.small, s.long} {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
	}
	return err
}

// take finds memory for a message's packet of n bytes; arq.NoSlot: none is left.
//
// hot: BenchmarkAM.
func (s *slots) take(n int) uint32 {
	if n <= smallLen {
		if s.small.Free() <= ownSlots {
			return arq.NoSlot
		}
		return s.takeOwn()
	}
	if i, ok := s.long.Take(); ok {
		return i | longBit
	}
	return arq.NoSlot
}

// takeOwn finds memory for a short packet.
func (s *slots) takeOwn() uint32 {
	if i, ok := s.small.Take(); ok {
		return i
	}
	return arq.NoSlot
}

// free reports whether take would find memory for a packet of n bytes.
func (s *slots) free(n int) bool {
	if n <= smallLen {
		return s.small.Free() > ownSlots
	}
	return s.long.Free() > 0
}

func (s *slots) give(i uint32) {
	if i&longBit == 0 {
		s.small.Give(i)
	} else {
		s.long.Give(i &^ longBit)
	}
}

// bytes is the whole memory of a slot.
func (s *slots) bytes(i uint32) []byte {
	if i&longBit == 0 {
		return s.small.Bytes(i)
	}
	return s.long.Bytes(i &^ longBit)
}

func (s *slots) piece(i uint32, n int) verbs.SGE {
	if i&longBit == 0 {
		return s.small.Piece(i, n)
	}
	return s.long.Piece(i&^longBit, n)
}

func (s *slots) kind(i uint32) (kind, index uint32) { return i / longBit & 1, i &^ longBit }

func (s *slots) len(i uint32) int {
	k, i := s.kind(i)
	return int(s.lens[k][i])
}

func (s *slots) setLen(i uint32, n int) {
	k, i := s.kind(i)
	s.lens[k][i] = uint16(n)
}

// readBy is the last work request that reads the slot.
func (s *slots) readBy(i uint32) uint64 {
	k, i := s.kind(i)
	return s.posted[k][i]
}

func (s *slots) setReadBy(i uint32, id uint64) {
	k, i := s.kind(i)
	s.posted[k][i] = id
}
