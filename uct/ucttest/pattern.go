package ucttest

import "encoding/binary"

var le = binary.LittleEndian

// poison is what a buffer is overwritten with once it is the caller's again.
const poison = 0xdb

// stream gives bytes that depend on a seed.
type stream uint64

func newStream(seed uint64) stream { return stream(seed*0x9e3779b97f4a7c15 | 1) }

func (s *stream) next() byte {
	x := *s
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*s = x
	return byte(x >> 32)
}

// fill writes the bytes of a seed.
func fill(p []byte, seed uint64) {
	s := newStream(seed)
	for i := range p {
		p[i] = s.next()
	}
}

// pattern gives n bytes of fill.
func pattern(n int, seed uint64) []byte {
	p := make([]byte, n)
	fill(p, seed)
	return p
}

// holds tells whether p is what fill wrote.
func holds(p []byte, seed uint64) bool {
	s := newStream(seed)
	for i := range p {
		if p[i] != s.next() {
			return false
		}
	}
	return true
}

func clobber(p []byte) {
	for i := range p {
		p[i] = poison
	}
}
