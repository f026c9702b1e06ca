package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
)

// inbox is the receive queue of an engine on the in-process link: a ring that many senders write
// and the holder of the receive token reads. It starts small. A sender that finds it
// full appends a ring of twice the length, up to max, and closes the full one. The
// reader empties a ring before it moves to the next, so packets of one sender stay in
// order.
//
// Publication: claim reserves a cell by a compare-and-swap of tail. The sender fills
// the cell and then stores its seq, a release store. The reader uses the cell only if
// it loads the sequence number that it expects. It frees cells by a release store of
// head. A sender reuses a cell only after it has loaded a head beyond it.
//
// Close: ringClosed is a bit of tail, so no cell is reserved after it. The reader
// leaves a closed ring when head equals its tail.
type inbox struct {
	max       uint32                 // 0: there is no inbox
	readRing  atomic.Pointer[inRing] // the ring that is read; changed under the receive token
	writeRing atomic.Pointer[inRing] // the ring that is written
}

// inRing is one ring of an inbox. Reader and senders share only the cells. A sender
// loads head only if the ring is full by the head that it loaded last.
type inRing struct {
	cells []cell // length a power of two; cell i%len has seq i+1 when packet i is in it
	base  uint32 // packets read in earlier rings; set when the reader enters this ring
	next  atomic.Pointer[inRing]

	_          ucs.Pad
	tail       atomic.Uint64 // number of reserved cells, times two; plus ringClosed
	cachedHead atomic.Uint32 // head as a sender loaded it last

	_    ucs.Pad
	head atomic.Uint32 // number of cells read
	_    ucs.Pad
}

// ringClosed is set in tail when senders use the next ring.
const ringClosed = 1

const minInbox = 8

func (b *inbox) init(depth int) {
	for b.max = minInbox; b.max < uint32(depth); {
		b.max *= 2
	}
	g := newInRing(minInbox)
	b.readRing.Store(g)
	b.writeRing.Store(g)
}

func newInRing(n uint32) *inRing { return &inRing{cells: make([]cell, n)} }

func (g *inRing) at(i uint32) *cell { return &g.cells[i&uint32(len(g.cells)-1)] }

// nextRing returns the ring that follows g once all h reserved cells of g are read. It
// returns nil if there is no following ring yet, or g has unread cells. The caller has
// the receive token.
func (b *inbox) nextRing(g *inRing, h uint32) *inRing {
	next := g.next.Load()
	if next == nil || g.tail.Load() != uint64(h)<<1|ringClosed {
		return nil
	}
	next.base = g.base + h
	b.readRing.Store(next)
	return next
}

// bytes returns the size of the ring that is written, in bytes.
func (b *inbox) bytes() uint64 {
	if g := b.writeRing.Load(); g != nil {
		return uint64(len(g.cells)) * sizeOf[cell]()
	}
	return 0
}

// ready reports whether a packet may be available. Without the receive token the result
// is only a hint.
func (b *inbox) ready() bool {
	g := b.readRing.Load()
	h := g.head.Load()
	return g.at(h).seq.Load() == h+1 || g.next.Load() != nil
}

// claim reserves a cell for a packet. The caller publishes the packet by storing seq in
// the cell. It returns nil if the inbox is full.
func (b *inbox) claim() (c *cell, seq uint32) {
	for {
		g := b.writeRing.Load()
		t := g.tail.Load()
		i := uint32(t >> 1)
		if t&ringClosed != 0 {
			b.writeRing.CompareAndSwap(g, g.next.Load())
		} else if i-g.cachedHead.Load() < uint32(len(g.cells)) {
			if g.tail.CompareAndSwap(t, t+2) {
				return g.at(i), i + 1
			}
		} else if !g.refreshHead(i) && !b.grow(g) {
			return nil, 0
		}
	}
}

// refreshHead reloads the reader's head. It returns false if the ring is full.
func (g *inRing) refreshHead(i uint32) bool {
	h := g.head.Load()
	g.cachedHead.Store(h)
	return i-h < uint32(len(g.cells))
}

// grow appends a ring to g and closes g. It returns false if g has the maximum length.
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

// full reports whether the inbox has no free cell and the maximum length.
func (b *inbox) full() bool {
	g := b.writeRing.Load()
	t := g.tail.Load()
	i := uint32(t >> 1)
	return t&ringClosed == 0 && i-g.cachedHead.Load() >= b.max && !g.refreshHead(i)
}
