package ud

import (
	"errors"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/verbs"
)

const (
	// smallLen is the size of a slot for short messages, header included. Long slots are
	// about an MTU apart, and a window of them does not fit into the first-level cache.
	smallLen = 128
	// controlSlots is the number of short slots that only control packets use. Messages may
	// occupy all others until a flow opens, and a flow opens only with a Connect.
	controlSlots = 8
	// longBit distinguishes slots for long messages.
	longBit = 1 << 30
)

// slots is the registered memory of unacknowledged packets. arq identifies a packet by its slot.
// Before alloc there is no memory, and only alloc and close may be called.
type slots struct{ small, long slotSlab }

// slotSlab holds the slots of one size.
type slotSlab struct {
	*nic.Slab
	lastWR []uint64 // the last work request that reads a slot
	lens   []uint16 // length of the packet in a slot
}

// alloc allocates n short slots, n long slots and the reserved ones, unless it did so
// before.
func (s *slots) alloc(pd verbs.PD, n, packet int) (err error) {
	if s.small.Slab != nil {
		return nil
	}
	small, err := nic.NewSlab(pd, n+controlSlots, smallLen)
	if err != nil {
		return err
	}
	long, err := nic.NewSlab(pd, n, stride(packet))
	if err != nil {
		return errors.Join(err, small.Close())
	}
	s.small = slotSlab{small, make([]uint64, n+controlSlots), make([]uint16, n+controlSlots)}
	s.long = slotSlab{long, make([]uint64, n), make([]uint16, n)}
	return nil
}

// stride returns the size of a buffer for n bytes: an odd number of cache lines. So
// consecutive buffers do not map to the same cache sets.
func stride(n int) int { return ((n+63)/64 | 1) * 64 }

// take allocates a slot for a message's packet of n bytes. It returns arq.NoSlot if none
// is free.
//
//hot:bench BenchmarkAM
func (s *slots) take(n int) uint32 {
	if !s.hasFree(n) {
		return arq.NoSlot
	}
	if n <= smallLen {
		i, _ := s.small.Take()
		return i
	}
	i, _ := s.long.Take()
	return i | longBit
}

// hasFree reports whether take would find a slot for a packet of n bytes.
func (s *slots) hasFree(n int) bool {
	if n <= smallLen {
		return s.small.Free() > controlSlots
	}
	return s.long.Free() > 0
}

// at returns the slab of a slot, and the slot's index there.
func (s *slots) at(slot uint32) (*slotSlab, uint32) {
	if slot&longBit == 0 {
		return &s.small, slot
	}
	return &s.long, slot &^ longBit
}

func (s *slots) put(slot uint32) {
	k, i := s.at(slot)
	k.Put(i)
}
