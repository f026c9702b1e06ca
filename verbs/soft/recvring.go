package soft

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// recvWQE is a posted receive.
type recvWQE struct {
	id  uint64
	nsg uint8
	sg  [verbs.MaxSGE]verbs.SGE
}

// recvRing is a receive queue: a ring that starts empty and doubles when full. Programs
// post at its tail. The owner of the queue pair consumes at its head; a shared receive
// queue has many such owners.
//
// grow may replace the ring while a consumer reads. Every receive not yet consumed is
// in both rings, and nothing writes the old one any more. So the consumer may read
// either.
type recvRing struct {
	single bool // one goroutine posts at a time
	shared bool // several owners consume

	tail   cursor
	ring   atomic.Pointer[[]recvWQE] // length a power of two; replaced under tail
	maxLen uint64                    // under tail
	head   cursor

	posts, tailLocks uint64 // posts and locks, under tail
	headLocks        uint64 // locks, under head
}

const minRecvs = 4

func (r *recvRing) init(most int, single bool) {
	r.maxLen, r.single = uint64(most), single
}

// post queues wrs in order, as verbs.QP.PostRecv does.
//
//hot:bench BenchmarkRecvRing
func (r *recvRing) post(wrs []verbs.RecvWR) (int, ucs.Status) {
	t := r.tail.acquire(r.single)
	n, st := 0, ucs.OK
	ring, room := r.capacity()
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
			ring, room = r.capacity()
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
		count(&r.tailLocks, 1)
	}
	r.tail.publish(t)
	return n, st
}

// capacity returns the ring and how many receives fit in it.
func (r *recvRing) capacity() (ring []recvWQE, room uint64) {
	if p := r.ring.Load(); p != nil {
		ring = *p
	}
	return ring, min(uint64(len(ring)), r.maxLen)
}

// grow doubles the ring. It returns false if the queue has its full size. The caller
// holds the tail. Consumers may run concurrently.
func (r *recvRing) grow(t uint64) bool {
	h := r.head.pos()
	if t-h >= r.maxLen {
		return false
	}
	var old []recvWQE
	if p := r.ring.Load(); p != nil {
		old = *p
	}
	if t-h < uint64(len(old)) {
		return true // Resize may have raised the limit
	}
	ring := make([]recvWQE, max(minRecvs, 2*len(old)))
	for i := h; i != t; i++ {
		ring[i&uint64(len(ring)-1)] = old[i&uint64(len(old)-1)]
	}
	r.ring.Store(&ring)
	return true
}

// pop removes the next receive and copies it to w. It returns false if there is none.
//
// Concurrency: the owner of the queue pair; any goroutine for a shared receive queue.
//
//hot:bench BenchmarkRecvRing
func (r *recvRing) pop(w *recvWQE) bool {
	h := r.head.acquire(!r.shared)
	ok := h != r.tail.pos()
	if ok {
		ring := *r.ring.Load()
		e := &ring[h&uint64(len(ring)-1)]
		w.id, w.nsg = e.id, e.nsg
		copy(w.sg[:w.nsg], e.sg[:w.nsg])
		h++
	}
	if r.shared {
		count(&r.headLocks, 1)
	}
	r.head.publish(h)
	return ok
}

// peek returns the next receive without removing it, or nil. The result is valid until
// the caller calls skip or stay. For a shared receive queue it keeps the head locked
// until then.
//
// Concurrency: as take.
//
//hot:bench BenchmarkPingPong
func (r *recvRing) peek() *recvWQE {
	h := r.head.acquire(!r.shared)
	if h == r.tail.pos() {
		r.unpeek()
		return nil
	}
	ring := *r.ring.Load()
	return &ring[h&uint64(len(ring)-1)]
}

// skip removes the receive that peek returned.
func (r *recvRing) skip() {
	if r.shared {
		count(&r.headLocks, 1)
	}
	r.head.publish(r.head.pos() + 1)
}

// unpeek keeps the receive that peek returned, and unlocks the head.
func (r *recvRing) unpeek() {
	if r.shared {
		r.head.publish(r.head.pos())
	}
}

// reset empties the queue without completions, for a reset.
//
// Concurrency: as take.
func (r *recvRing) reset() {
	r.head.acquire(!r.shared)
	r.head.publish(r.tail.pos())
}

// len returns how many receives are queued.
func (r *recvRing) len() int {
	h := r.head.pos() // the head first: the tail is never behind it then
	return int(r.tail.pos() - h)
}

// addTo adds the queue's counters to c. Each post counts as one doorbell.
func (r *recvRing) addTo(c *counts) {
	posts := atomic.LoadUint64(&r.posts)
	c.add(cntPosts, posts)
	c.add(cntDoorbells, posts)
	c.add(cntWQEs, r.tail.pos())
	c.add(cntLocks, atomic.LoadUint64(&r.tailLocks)+atomic.LoadUint64(&r.headLocks))
}

// bytes returns the size of the ring in bytes.
func (r *recvRing) bytes() uint64 {
	if p := r.ring.Load(); p != nil {
		return uint64(len(*p)) * sizeOf[recvWQE]()
	}
	return 0
}
