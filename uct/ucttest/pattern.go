package ucttest

import "encoding/binary"

var le = binary.LittleEndian

// poison overwrites a buffer once the caller owns it again.
const poison = 0xdb

// stream generates words that depend on a seed.
type stream uint64

func newStream(seed uint64) stream { return stream(seed*0x9e3779b97f4a7c15 | 1) }

func (s *stream) next() uint64 {
	x := *s
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*s = x
	return uint64(x * 0x2545f4914f6cdd1d)
}

// fill writes the pattern of a seed, a word at a time. Under the race detector much of the suite's
// time is spent here.
func fill(p []byte, seed uint64) {
	s := newStream(seed)
	for ; len(p) >= 8; p = p[8:] {
		le.PutUint64(p, s.next())
	}
	var last [8]byte
	le.PutUint64(last[:], s.next())
	copy(p, last[:])
}

// pattern returns n bytes of fill.
func pattern(n int, seed uint64) []byte {
	p := make([]byte, n)
	fill(p, seed)
	return p
}

// holds reports whether p is what fill wrote.
func holds(p []byte, seed uint64) bool {
	s := newStream(seed)
	for ; len(p) >= 8; p = p[8:] {
		if le.Uint64(p) != s.next() {
			return false
		}
	}
	var last [8]byte
	le.PutUint64(last[:], s.next())
	return string(p) == string(last[:len(p)])
}

func clobber(p []byte) {
	for n := copy(p, []byte{poison}); n < len(p); n *= 2 {
		copy(p[n:], p[:n])
	}
}
