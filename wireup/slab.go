package wireup

import "encoding/binary"

// A slab stores byte records in large chunks without pointers. Millions of records cost the
// garbage collector nothing and have no header. A record is identified by its offset in units of
// eight bytes and never moves. Its owner stores the length. A freed offset is reused for records
// of the same rounded length.
type slab struct {
	chunks [][]byte
	used   int // used bytes of the last chunk
	// free[n] is the first free offset of n units, 0: none. The first four bytes there hold the
	// next one.
	free [maxUnits + 1]uint32
}

const (
	unit       = 8
	chunkBytes = 128 << 10
	chunkUnits = chunkBytes / unit
	maxUnits   = MaxAddress / unit
)

// alloc returns the offset of n bytes with undefined content, 0 < n <= MaxAddress. It never
// returns 0.
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

// at returns the n bytes at p.
func (s *slab) at(p uint32, n int) []byte {
	off := int(p%chunkUnits) * unit
	return s.chunks[p/chunkUnits][off : off+n : off+n]
}

// release frees the n bytes at p.
func (s *slab) release(p uint32, n int) {
	units := (n + unit - 1) / unit
	binary.LittleEndian.PutUint32(s.at(p, unit), s.free[units])
	s.free[units] = p
}
