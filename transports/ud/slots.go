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

// slots is the registered memory of unacknowledged packets. arq knows a packet by its slot
// number. Before stock there is no memory, and only stock and close may be called.
type slots struct {
	small, long *nic.Slab
	// lastWR is the last work request that reads a slot, lens the length of its packet.
	// Both are indexed by kind and slot.
	lastWR [2][]uint64
	lens   [2][]uint16
}

// alloc allocates n short slots, n long slots and the reserved ones, unless it did so
// before.
func (s *slots) alloc(pd verbs.PD, n, packet int) error {
	if len(s.lastWR[0]) > 0 {
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
	s.small, s.long = small, long
	for i := range s.lastWR {
		s.lastWR[i], s.lens[i] = make([]uint64, n+controlSlots), make([]uint16, n+controlSlots)
	}
	return nil
}

// stride returns the size of a buffer for n bytes: an odd number of cache lines. So
// consecutive buffers do not map to the same cache sets.
func stride(n int) int { return ((n+63)/64 | 1) * 64 }

func (s *slots) close() (err error) {
	for _, b := range []*nic.Slab{s.small, s.long} {
		if b != nil {
			err = errors.Join(err, b.Close())
		}
	}
	return err
}

// take allocates a slot for a message's packet of n bytes. It returns arq.NoSlot if none
// is free.
//
//hot:bench BenchmarkAM
func (s *slots) take(n int) uint32 {
	if n <= smallLen {
		if s.small.Free() <= controlSlots {
			return arq.NoSlot
		}
		return s.takeControl()
	}
	if i, ok := s.long.Take(); ok {
		return i | longBit
	}
	return arq.NoSlot
}

// takeControl allocates a short slot for a control packet; the reserved ones are included.
func (s *slots) takeControl() uint32 {
	if i, ok := s.small.Take(); ok {
		return i
	}
	return arq.NoSlot
}

// hasFree reports whether take would find a slot for a packet of n bytes.
func (s *slots) hasFree(n int) bool {
	if n <= smallLen {
		return s.small.Free() > controlSlots
	}
	return s.long.Free() > 0
}

func (s *slots) put(i uint32) {
	if i&longBit == 0 {
		s.small.Put(i)
	} else {
		s.long.Put(i &^ longBit)
	}
}

// bytes returns the whole memory of a slot.
func (s *slots) bytes(i uint32) []byte {
	if i&longBit == 0 {
		return s.small.Bytes(i)
	}
	return s.long.Bytes(i &^ longBit)
}

func (s *slots) sge(i uint32, n int) verbs.SGE {
	if i&longBit == 0 {
		return s.small.SGE(i, n)
	}
	return s.long.SGE(i&^longBit, n)
}

// kind returns the index of a slot's tables in posted and lens, and its index there.
func (s *slots) kind(i uint32) (kind, index uint32) { return i / longBit & 1, i &^ longBit }

func (s *slots) len(i uint32) int {
	k, i := s.kind(i)
	return int(s.lens[k][i])
}

func (s *slots) setLen(i uint32, n int) {
	k, i := s.kind(i)
	s.lens[k][i] = uint16(n)
}

// readBy returns the last work request that reads the slot.
func (s *slots) readBy(i uint32) uint64 {
	k, i := s.kind(i)
	return s.lastWR[k][i]
}

func (s *slots) setReadBy(i uint32, id uint64) {
	k, i := s.kind(i)
	s.lastWR[k][i] = id
}
