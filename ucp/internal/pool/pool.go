// Package pool has memory in pieces by size class, for messages that wait: a steady flow of them
// allocates nothing from the Go heap. A pool belongs to one worker.
package pool

import "math/bits"

// Chunk is a handle of a piece of pool memory: the size class in the upper half, the index
// below. 0 is none.
type Chunk uint64

const (
	minClass  = 6  // 64 B
	maxClass  = 20 // 1 MB; longer pieces are allocated one by one
	bigClass  = maxClass + 1
	slabBytes = 64 << 10
	// maxFreePieces is the number of free pieces kept of each class whose slab holds one piece.
	maxFreePieces = 8
)

// Pool allocates memory by size class, so that a steady flow of messages allocates nothing
// from the Go heap. The zero pool is ready for use.
type Pool struct {
	classes   [bigClass + 1]class
	Allocated int // bytes in use
}

// class is the memory of one size class, in slabs of pieces of equal size.
type class struct {
	slabs [][]byte
	free  []uint32 // free pieces
	bare  []uint32 // pieces whose memory was returned to the Go heap
}

// perSlab returns the base-2 logarithm of the number of pieces in a slab of class c.
func perSlab(c uint) uint {
	return max(16-min(c, 16), 0)
}

// Get allocates at least n bytes.
func (p *Pool) Get(n int) Chunk {
	c := uint(min(max(bits.Len(uint(max(n, 1)-1)), minClass), bigClass))
	k := &p.classes[c]
	size := n
	if c != bigClass {
		size = 1 << c
	}
	if len(k.free) == 0 {
		k.grow(c, size)
	}
	last := len(k.free) - 1
	i := k.free[last]
	k.free = k.free[:last]
	p.Allocated += size
	return Chunk(c)<<32 | Chunk(i)
}

//go:noinline
func (k *class) grow(c uint, size int) {
	if n := len(k.bare); n > 0 {
		i := k.bare[n-1]
		k.bare = k.bare[:n-1]
		k.slabs[i] = make([]byte, size)
		k.free = append(k.free, i)
		return
	}
	k.slabs = append(k.slabs, make([]byte, size<<perSlab(c)))
	first := uint32(len(k.slabs)-1) << perSlab(c)
	for i := uint32(1)<<perSlab(c) - 1; ; i-- {
		k.free = append(k.free, first+i)
		if i == 0 {
			return
		}
	}
}

// Bytes returns the whole memory of h.
func (p *Pool) Bytes(h Chunk) []byte {
	c, i := uint(h>>32), uint32(h)
	slab := p.classes[c].slabs[i>>perSlab(c)]
	if perSlab(c) == 0 {
		return slab
	}
	at := int(i&(1<<perSlab(c)-1)) << c
	return slab[at : at+1<<c : at+1<<c]
}

// Put frees h. If h is 0 it does nothing.
func (p *Pool) Put(h Chunk) {
	if h == 0 {
		return
	}
	c, i := uint(h>>32), uint32(h)
	k := &p.classes[c]
	p.Allocated -= len(p.Bytes(h))
	if c == bigClass || perSlab(c) == 0 && len(k.free) >= maxFreePieces {
		k.slabs[i] = nil
		k.bare = append(k.bare, i)
		return
	}
	k.free = append(k.free, i)
}

// Size returns the size of h in bytes.
func (p *Pool) Size(h Chunk) uint64 {
	if c := uint(h >> 32); c != bigClass {
		return 1 << c
	}
	return uint64(len(p.Bytes(h)))
}
