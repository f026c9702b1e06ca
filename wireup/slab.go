package wireup

import "encoding/binary"

// A slab keeps byte records in large chunks without pointers, so that millions
// of them cost the collector nothing and have no header. A record is named by
// its place in units of eight bytes and never moves; its owner knows its
// length. Freed places are reused for records of the same rounded length.
type slab struct {
	chunks [][]byte
	used   int // bytes of the last chunk
	// free[n] is the first free place of n units, 0: none. The place's first
	// four bytes name the next.
	free [maxUnits + 1]uint32
}

const (
	unit       = 8
	chunkBytes = 128 << 10
	chunkUnits = chunkBytes / unit
	maxUnits   = MaxAddress / unit
)

// alloc gives a place for n bytes, 0 < n <= MaxAddress, whose content is
// undefined. Place 0 is never given.
func (s *slab) alloc(n int) uint32 {
	units := (n + unit - 1) / unit
	if p := s.free[units]; p != 0 {
		s.free[units] = binary.LittleEndian.Uint32(s.at(p, unit))
		return p
	}
	if len(s.chunks) == 0 || s.used+units*unit > chunkBytes {
		s.chunks = append(s.chunks, make([]byte, chunkBytes))
		s.used = 0
		if len(s.chunks) == 1 {
			s.used = unit
		}
	}
	p := uint32((len(s.chunks)-1)*chunkUnits + s.used/unit)
	s.used += units * unit
	return p
}

// at is the memory of the n bytes at p.
func (s *slab) at(p uint32, n int) []byte {
	off := int(p%chunkUnits) * unit
	return s.chunks[p/chunkUnits][off : off+n : off+n]
}

// release gives back the n bytes at p.
func (s *slab) release(p uint32, n int) {
	units := (n + unit - 1) / unit
	binary.LittleEndian.PutUint32(s.at(p, unit), s.free[units])
	s.free[units] = p
}
