package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// recvWQE is a receive that is queued.
type recvWQE struct {
	id  uint64
	nsg uint8
	sg  [verbs.MaxSGE]verbs.SGE
}

// recvRing is a queue of receives. It starts empty and doubles on use. Programs
// post at its tail, the owner of the queue pair takes at its head; of a shared
// queue there are many owners.
type recvRing struct {
	single bool // one goroutine posts at a time
	shared bool // many owners take

	tail cursor
	ring atomic.Pointer[[]recvWQE] // a power of two; replaced under tail
	most uint64                    // under tail
	head cursor

	posts, tails uint64 // posts and locks, under tail
	heads        uint64 // locks, under head
}

const minRecvs = 4

func (r *recvRing) init(most int, single bool) {
	r.most, r.single = uint64(most), single
}

// post queues wrs in order; see verbs.QP.
//
// hot: BenchmarkRecvRing.
func (r *recvRing) post(wrs []verbs.RecvWR) (int, ucs.Status) {
	t := r.tail.begin(r.single)
	n, st := 0, ucs.OK
	ring, room := r.space()
	for ; n < len(wrs); n++ {
		w := &wrs[n]
		if w.NumSG > verbs.MaxSGE {
			st = ucs.InvalidParam
			break
		}
		if t-r.head.pos() >= room {
			if !r.grow(t) {
				st = ucs.NoResource
				break
			}
			ring, room = r.space()
		}
		e := &ring[t&uint64(len(ring)-1)]
		e.id, e.nsg = w.ID, w.NumSG
		e.sg[0] = w.SG[0]
		if w.NumSG > 1 {
			copy(e.sg[1:w.NumSG], w.SG[1:])
		}
		t++
	}
	count(&r.posts, 1)
	if !r.single {
		count(&r.tails, 1)
	}
	r.tail.end(t)
	return n, st
}

// space gives the ring and how many receives it takes.
func (r *recvRing) space() (ring []recvWQE, room uint64) {
	if p := r.ring.Load(); p != nil {
		ring = *p
	}
	return ring, min(uint64(len(ring)), r.most)
}

// grow doubles the ring; false: it is as long as it may be. The caller holds the
// tail; the taker goes on meanwhile, in the old ring or the new one.
func (r *recvRing) grow(t uint64) bool {
	h := r.head.pos()
	if t-h >= r.most {
		return false
	}
	var old []recvWQE
	if p := r.ring.Load(); p != nil {
		old = *p
	}
	if t-h < uint64(len(old)) {
		return true // it may be longer since a resize
	}
	ring := make([]recvWQE, max(minRecvs, 2*len(old)))
	for i := h; i != t; i++ {
		ring[i&uint64(len(ring)-1)] = old[i&uint64(len(old)-1)]
	}
	r.ring.Store(&ring)
	return true
}

// take gives the next receive; false: there is none.
//
// Concurrency: the owner of the queue pair; of a shared queue any.
//
// hot: BenchmarkRecvRing.
func (r *recvRing) take(w *recvWQE) bool {
	h := r.head.begin(!r.shared)
	ok := h != r.tail.pos()
	if ok {
		ring := *r.ring.Load()
		e := &ring[h&uint64(len(ring)-1)]
		w.id, w.nsg = e.id, e.nsg
		copy(w.sg[:w.nsg], e.sg[:w.nsg])
		h++
	}
	if r.shared {
		count(&r.heads, 1)
	}
	r.head.end(h)
	return ok
}

// peek gives the next receive without taking it; nil: there is none. It is good
// until skip or stay, one of which follows soon: nobody else takes meanwhile.
//
// Concurrency: as take.
//
// hot: BenchmarkPingPong.
func (r *recvRing) peek() *recvWQE {
	h := r.head.begin(!r.shared)
	if h == r.tail.pos() {
		r.stay()
		return nil
	}
	ring := *r.ring.Load()
	return &ring[h&uint64(len(ring)-1)]
}

// skip takes what peek gave.
func (r *recvRing) skip() {
	if r.shared {
		count(&r.heads, 1)
	}
	r.head.end(r.head.pos() + 1)
}

// stay leaves what peek gave.
func (r *recvRing) stay() {
	if r.shared {
		r.head.end(r.head.pos())
	}
}

// drop empties the queue without telling anyone: a reset.
//
// Concurrency: as take.
func (r *recvRing) drop() {
	r.head.begin(!r.shared)
	r.head.end(r.tail.pos())
}

// len is how many receives are queued.
func (r *recvRing) len() int {
	h := r.head.pos() // first: the tail is never behind it then
	return int(r.tail.pos() - h)
}

// addTo adds the queue's counters. Each post is a doorbell of its own.
func (r *recvRing) addTo(c *counts) {
	posts := atomic.LoadUint64(&r.posts)
	c.add(cntPosts, posts)
	c.add(cntDoorbells, posts)
	c.add(cntWQEs, r.tail.pos())
	c.add(cntLocks, atomic.LoadUint64(&r.tails)+atomic.LoadUint64(&r.heads))
}

// bytes is what the queue has grown to.
func (r *recvRing) bytes() uint64 {
	if p := r.ring.Load(); p != nil {
		return uint64(len(*p)) * sizeOf[recvWQE]()
	}
	return 0
}
