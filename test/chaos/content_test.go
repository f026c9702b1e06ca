//go:build linux

package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
)

// mix hashes words into one.
func mix(words ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, w := range words {
		hi, lo := bits.Mul64(h^w, 0xd6e8feb86659fd93)
		h = hi ^ lo ^ w
	}
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	return h ^ h>>29
}

// fill writes the content of key into p. A prefix of it is the content of a shorter
// message with the same key.
func fill(p []byte, key uint64) {
	x := key
	for ; len(p) >= 8; p = p[8:] {
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(p, x^x>>29)
	}
	if len(p) > 0 {
		var last [8]byte
		x = x*6364136223846793005 + 1442695040888963407
		binary.LittleEndian.PutUint64(last[:], x^x>>29)
		copy(p, last[:])
	}
}

// checker compares with the content of a key.
type checker struct{ want []byte }

// check describes the first difference of p from the content of key.
func (c *checker) check(p []byte, key uint64) error {
	if len(c.want) < len(p) {
		c.want = make([]byte, len(p))
	}
	want := c.want[:len(p)]
	fill(want, key)
	return difference(p, want)
}

func difference(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	first, wrong := -1, 0
	for i := range got {
		if got[i] != want[i] {
			wrong++
			if first < 0 {
				first = i
			}
		}
	}
	end := min(first+16, len(got))
	return fmt.Errorf("%d of %d bytes are wrong, the first at %d: % x, not % x", wrong, len(got), first, got[first:end], want[first:end])
}

// longest is the longest message.
const longest = 256 << 10

// sizeOf is the length of the message with this key. It favours what is short, and
// lengths at the thresholds.
func sizeOf(key uint64) int {
	r := mix(key, 'n')
	pick, r := r%100, r/100
	switch {
	case pick < 5:
		return 0
	case pick < 20:
		return 8
	case pick < 55:
		return int(r % 120)
	case pick < 70:
		return int(r % 2100)
	case pick < 82:
		return int(r % 9200)
	case pick < 92:
		return int(r % 70000)
	case pick < 97:
		return 65534 + int(r%5)
	default:
		return int(r % longest)
	}
}

// pool holds buffers by size class. A free buffer holds the canary: a write after
// the end of a request is found when the buffer is used next, and a read sends what
// the receiver does not expect. One goroutine uses it.
type pool struct {
	free map[int][][]byte
	made uint64 // bytes of all buffers, those in use too
}

const canary = 0xdb

var canaries = bytes.Repeat([]byte{canary}, longest)

func newPool() *pool { return &pool{free: make(map[int][][]byte)} }

// class is the capacity of a buffer for n bytes.
func class(n int) int { return 64 << bits.Len(uint(max(n, 1)-1)>>6) }

// get returns n bytes. It returns an error if the buffer was written to while free.
func (p *pool) get(n int) ([]byte, error) {
	c := class(n)
	l := p.free[c]
	if len(l) == 0 {
		p.made += uint64(c)
		return make([]byte, n, c), nil
	}
	// The one that was released first: late accesses have had time.
	b := l[0]
	copy(l, l[1:])
	p.free[c] = l[:len(l)-1]
	if b = b[:c]; !bytes.Equal(b, canaries[:c]) {
		return nil, fmt.Errorf("a buffer was written after its request had ended: %w", difference(b, canaries[:c]))
	}
	return b[:n], nil
}

// lose leaves a buffer that a peer may still access to the garbage collector.
func (p *pool) lose(b []byte) { p.made -= uint64(cap(b)) }

func (p *pool) put(b []byte) {
	if b == nil {
		return
	}
	b = b[:cap(b)]
	copy(b, canaries[:len(b)])
	p.free[len(b)] = append(p.free[len(b)], b)
}
