package nic

import (
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
)

// Reserve is buffers that are posted to a shared receive queue while the worker
// that refills it is busy elsewhere: the queue's limit event has the async goroutine
// post them.
//
// Concurrency: the worker calls the methods; its side of the slab is its own.
type Reserve struct {
	d     *Domain
	srq   verbs.SRQ
	slab  *Slab
	len   int // of each receive
	limit int

	touched atomic.Bool // posted is not 0

	mu     sync.Mutex // guards the rest; held for at most one post of each
	bufs   []uint32
	posted int // since the last Balance
	wrs    [reserveBatch]verbs.RecvWR
}

// reserveBatch is how many receives the async goroutine posts at a time.
const reserveBatch = 16

// NewReserve makes a reserve without buffers. The queue's limit event is its own
// from now on; it comes when fewer receives than limit are left. Receives have n
// bytes.
func (d *Domain) NewReserve(q verbs.SRQ, s *Slab, n, limit int) (*Reserve, error) {
	r := &Reserve{d: d, srq: q, slab: s, len: n, limit: limit}
	return r, d.OnLow(q, r.refill)
}

// Close ends the reserve, before the queue and the slab.
func (r *Reserve) Close() error { return r.d.OffLow(r.srq) }

// Touched reports whether the async goroutine has posted receives since the last
// Balance.
func (r *Reserve) Touched() bool { return r.touched.Load() }

// Balance leaves the worker keep free buffers, as far as there are any, and takes
// the others. It gives how many receives were posted since the last time.
func (r *Reserve) Balance(keep int) (posted int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.slab.Free() > keep {
		i, _ := r.slab.Take()
		r.bufs = append(r.bufs, i)
	}
	for r.slab.Free() < keep && len(r.bufs) > 0 {
		r.slab.Give(r.bufs[len(r.bufs)-1])
		r.bufs = r.bufs[:len(r.bufs)-1]
	}
	posted, r.posted = r.posted, 0
	r.touched.Store(false)
	r.arm()
	return posted
}

// refill posts what fits.
func (r *Reserve) refill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for left := len(r.bufs); left > 0; left = len(r.bufs) {
		last := r.bufs[left-min(left, len(r.wrs)):]
		for i, buf := range last {
			w := &r.wrs[i]
			w.ID, w.NumSG, w.SG[0] = uint64(buf), 1, r.slab.Piece(buf, r.len)
		}
		k, _ := r.srq.PostRecv(r.wrs[:len(last)])
		// Those that were taken leave: they stand first.
		r.bufs = append(r.bufs[:left-len(last)], last[k:]...)
		r.posted += k
		if k < len(last) {
			break
		}
	}
	r.touched.Store(r.posted > 0)
	r.arm()
}

// arm asks for the event, where there is something to post then.
func (r *Reserve) arm() {
	n := 0
	if len(r.bufs) > 0 {
		n = r.limit
	}
	_ = r.srq.SetLimit(n) // the event is a help, not a need
}
