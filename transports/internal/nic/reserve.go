package nic

import (
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
)

// Reserve holds buffers that the async goroutine posts to a shared receive queue (SRQ) while
// the worker does not refill it. The limit event of the SRQ triggers the posts.
//
// Concurrency: the worker calls the methods. Only the worker changes the free list of the slab.
type Reserve struct {
	d       *Domain
	watcher Watcher
	srq     verbs.SRQ
	slab    *Slab
	len     int // of each receive, in bytes
	limit   int

	touched atomic.Bool // posted is not 0

	mu     sync.Mutex // guards the rest; held for at most one post of each buffer
	bufs   []uint32
	posted int // receives posted since the last Balance
	wrs    [reserveBatch]verbs.RecvWR
}

// reserveBatch is the number of receives that the async goroutine posts at a time.
const reserveBatch = 16

// NewReserve returns a reserve without buffers, which takes over the limit event of q. The
// event occurs when fewer than limit receives are left. Receives have n bytes.
func (d *Domain) NewReserve(q verbs.SRQ, s *Slab, n, limit int) (*Reserve, error) {
	r := &Reserve{d: d, srq: q, slab: s, len: n, limit: limit}
	r.watcher = Watcher{SRQ: q, OnLimit: r.refill}
	return r, d.Watch(&r.watcher)
}

// Close closes the reserve. It must precede closing the queue and the slab.
func (r *Reserve) Close() error { return r.d.Unwatch(&r.watcher) }

// Touched reports whether the async goroutine has posted receives since the last Balance.
func (r *Reserve) Touched() bool { return r.touched.Load() }

// Balance leaves up to keep free buffers in the slab, and takes the others or returns some. It
// returns the number of receives posted since the last call.
func (r *Reserve) Balance(keep int) (posted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.slab.Free() > keep {
		i, _ := r.slab.Take()
		r.bufs = append(r.bufs, i)
	}
	for r.slab.Free() < keep && len(r.bufs) > 0 {
		r.slab.Put(r.bufs[len(r.bufs)-1])
		r.bufs = r.bufs[:len(r.bufs)-1]
	}
	posted, r.posted = r.posted, 0
	r.touched.Store(false)
	r.arm()
	return posted
}

// refill posts as many buffers as the queue accepts.
func (r *Reserve) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for left := len(r.bufs); left > 0; left = len(r.bufs) {
		last := r.bufs[left-min(left, len(r.wrs)):]
		for i, buf := range last {
			w := &r.wrs[i]
			w.ID, w.NumSG, w.SG[0] = uint64(buf), 1, r.slab.SGE(buf, r.len)
		}
		k, _ := r.srq.PostRecv(r.wrs[:len(last)])
		// The queue accepts the first ones of last.
		r.bufs = append(r.bufs[:left-len(last)], last[k:]...)
		r.posted += k
		if k < len(last) {
			break
		}
	}
	r.touched.Store(r.posted > 0)
	r.arm()
}

// arm requests the limit event if there are buffers to post.
func (r *Reserve) arm() {
	n := 0
	if len(r.bufs) > 0 {
		n = r.limit
	}
	_ = r.srq.SetLimit(n) // without the event the worker still posts receives
}
