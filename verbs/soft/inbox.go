package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// inbox is where the in-process device's packets arrive: a ring that many write
// and the holder of the receive token reads. It starts small. Who finds it full
// adds one twice as long, up to the depth; the reader empties the old one before
// it goes on there, so that packets of one sender stay in order.
type inbox struct {
	max   uint32
	first atomic.Pointer[inRing] // what is read; moved under the receive token
	last  atomic.Pointer[inRing] // what is written
}

// inRing is one ring of an inbox. Reader and writers share nothing but the cells:
// a writer looks at head only where it would overtake what it knows of it.
type inRing struct {
	cells []cell // a power of two; place i holds sequence number i+1 when it is full
	base  uint32 // packets that were read before; set when reading begins here
	next  atomic.Pointer[inRing]

	_    ucs.Pad
	tail atomic.Uint64 // places given out, twice; with ringClosed
	seen atomic.Uint32 // head, as a writer saw it

	_    ucs.Pad
	head atomic.Uint32 // places read
	_    ucs.Pad
}

// ringClosed in the tail: writers go on in the next ring.
const ringClosed = 1

const minInbox = 8

func newInbox(depth int) *inbox {
	b := &inbox{max: minInbox}
	for b.max < uint32(depth) {
		b.max *= 2
	}
	g := newInRing(minInbox)
	b.first.Store(g)
	b.last.Store(g)
	return b
}

func newInRing(n uint32) *inRing { return &inRing{cells: make([]cell, n)} }

func (g *inRing) at(i uint32) *cell { return &g.cells[i&uint32(len(g.cells)-1)] }

// onward gives the ring that is read after g, where h places of it were; nil:
// nothing has come since. The caller has the token.
func (b *inbox) onward(g *inRing, h uint32) *inRing {
	next := g.next.Load()
	if next == nil || g.tail.Load() != uint64(h)<<1|ringClosed {
		return nil
	}
	next.base = g.base + h
	b.first.Store(next)
	return next
}

// ready reports whether a packet may be there. Only a hint without the token.
func (b *inbox) ready() bool {
	g := b.first.Load()
	h := g.head.Load()
	return g.at(h).seq.Load() == h+1 || g.next.Load() != nil
}

// taken is how many packets have been read.
func (b *inbox) taken() uint32 {
	g := b.first.Load()
	return g.base + g.head.Load()
}

// claim takes a place for a packet, which is there when seq is stored; nil: there
// is none.
func (b *inbox) claim() (c *cell, seq uint32) {
	for {
		g := b.last.Load()
		t := g.tail.Load()
		i := uint32(t >> 1)
		if t&ringClosed != 0 {
			b.last.CompareAndSwap(g, g.next.Load())
		} else if i-g.seen.Load() < uint32(len(g.cells)) {
			if g.tail.CompareAndSwap(t, t+2) {
				return g.at(i), i + 1
			}
		} else if !g.look(i) && !b.grow(g) {
			return nil, 0
		}
	}
}

// look sees how far the reader is; false: the ring is full.
func (g *inRing) look(i uint32) bool {
	h := g.head.Load()
	g.seen.Store(h)
	return i-h < uint32(len(g.cells))
}

// grow adds a ring behind g and closes g; false: it is as long as it may be.
func (b *inbox) grow(g *inRing) bool {
	n := uint32(len(g.cells))
	if n >= b.max {
		return false
	}
	if g.next.Load() == nil {
		g.next.CompareAndSwap(nil, newInRing(2*n))
	}
	g.tail.Or(ringClosed)
	return true
}

// full reports whether claim would find no place.
func (b *inbox) full() bool {
	g := b.last.Load()
	t := g.tail.Load()
	i := uint32(t >> 1)
	return t&ringClosed == 0 && i-g.seen.Load() >= b.max && !g.look(i)
}
