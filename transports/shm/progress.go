package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
)

// servicePasses is the number of passes between two polls of the sockets, a power of
// two. It amounts to 15-25 µs. A poll is a system call: one per 1,024 passes took 4 %
// of an 8-byte latency.
const servicePasses = 2048

// stalePasses is the number of passes without a message after which a hot connection
// may be demoted in favour of another.
const stalePasses = 4096

// drainBatch is the maximum number of messages that a pass takes from one connection.
// UCX's mm transport has the same limit. A larger batch would overrun a window of posted
// receives, and messages would become unexpected.
const drainBatch = 16

// Progress polls the cells of the hot connections and four doorbell words of the
// others. It calls no function until it finds something, so that no register is
// spilled.
//
// hot: BenchmarkProgressIdle
//
//go:nosplit
func (f *iface) Progress(budget int) int {
	for _, e := range f.hot {
		if e.rx.Ready() {
			return f.hotHit(budget)
		}
	}
	f.passes++
	if f.passes&(servicePasses-1) == 0 || f.extra {
		return f.passMore(budget)
	}
	return 0
}

// passMore polls doorbell words and does the periodic work of a pass.
//
//go:noinline
func (f *iface) passMore(budget int) int {
	if c := f.cold; c+inboxStride <= len(f.words) && c+inboxStride <= len(f.seen) {
		if differ((*[inboxStride]uint64)(f.words[c:]), (*[inboxStride]uint64)(f.seen[c:])) {
			return f.coldHit(budget)
		}
		f.cold = c + inboxStride
	} else {
		f.cold = 0
	}
	if f.passes&(servicePasses-1) == 0 || f.attention || len(f.waiting) != 0 {
		return f.slowPass()
	}
	return 0
}

// differ reports whether one of four doorbell words has changed. Peers write them.
func differ(h, seen *[inboxStride]uint64) bool {
	return atomic.LoadUint64(&h[0])^seen[0]|atomic.LoadUint64(&h[1])^seen[1]|
		atomic.LoadUint64(&h[2])^seen[2]|atomic.LoadUint64(&h[3])^seen[3] != 0
}

// hotHit drains the hot connections.
//
//go:noinline
//go:nosplit
func (f *iface) hotHit(budget int) int {
	f.enter()
	var n int
	if len(f.hot) == 1 {
		n = f.drain(f.hot[0], budget)
	} else {
		n = f.drainHot(budget)
	}
	return n + f.leave()
}

// drainHot begins with the next connection in each call, so that a busy peer does not
// consume the whole budget.
func (f *iface) drainHot(budget int) int {
	n := 0
	if f.turn++; f.turn >= len(f.hot) {
		f.turn = 0
	}
	for i := range f.hot {
		j := f.turn + i
		if j >= len(f.hot) {
			j -= len(f.hot)
		}
		if j < len(f.hot) && n < budget && f.hot[j].rx.Ready() {
			n += f.drain(f.hot[j], budget-n)
		}
	}
	return n
}

// coldHit drains the connections whose doorbell words have changed.
//
//go:noinline
func (f *iface) coldHit(budget int) int {
	f.enter()
	c := f.cold
	f.cold = c + inboxStride // the next pass polls the next words, however busy these are
	n := f.hints(c, inboxStride, budget)
	return n + f.leave()
}

// enter begins a section of callbacks and leave ends it.
func (f *iface) enter() {
	if f.armed {
		f.disarm()
	}
	f.busy++
}

// leave counts the pass. A worker that always finds messages thus still services its
// sockets.
func (f *iface) leave() int {
	f.busy--
	f.passes++
	if f.passes&(servicePasses/4-1) == 0 || f.extra {
		return f.slowPass() // does nothing if only doorbell words are left to poll
	}
	return 0
}

// slowPass does the periodic work of passes: pending operations and service.
//
//go:noinline
func (f *iface) slowPass() int {
	if f.closed {
		return 0
	}
	f.busy++
	n := 0
	if len(f.waiting) != 0 {
		n = f.offerAll()
	}
	if f.attention || f.passes&(servicePasses/4-1) == 0 {
		n += f.service()
	}
	f.extra = f.attention || len(f.waiting) != 0 || len(f.words) != 0
	f.busy--
	return n
}

// drain delivers at most budget messages of e to the handler as one batch. A single
// message takes no loop.
//
//go:noinline
//go:nosplit
func (f *iface) drain(e *ep, budget int) int {
	rx := &e.rx
	first, more := rx.Poll()
	if !more {
		return 0
	}
	k := 0
	if off, n, ok := rx.Inline(first); ok {
		d := &f.ds[0]
		d.Off, d.Len, d.Header = off, n, rx.Header()
		d.ID, d.RxConn = uct.AMID(ring.ID(first))%uct.NumAMIDs, e.source
		rx.Advance()
		k = 1
	}
	if k == 0 || rx.Ready() {
		if k = f.drainMore(e, k, budget); k == 0 {
			return 0
		}
	}
	e.hit = f.passes
	f.handler.HandleAM(rx.Data(), f.ds[:k])
	if rx.Release() {
		e.roomFreed()
	}
	return k
}

// drainMore appends messages to the k that drain has taken, up to budget, and returns
// the total.
//
//go:noinline
func (f *iface) drainMore(e *ep, k, budget int) int {
	rx, at := &e.rx, e.rx.Cursor()
	ds := f.ds[:max(k, min(budget, drainBatch))]
	for k < len(ds) {
		first, more := at.Poll()
		if !more {
			break
		}
		d := &ds[k]
		off, n, ok := at.Inline(first)
		if !ok {
			rx.Seek(at)
			if off, n, ok = rx.Bulk(first); !ok {
				if k == 0 { // otherwise the messages before it are delivered first
					f.follow(e, first)
					return 0
				}
				break
			}
		}
		d.Off, d.Len, d.Header = off, n, at.Header()
		d.ID, d.RxConn = uct.AMID(ring.ID(first))%uct.NumAMIDs, e.source
		at = at.Next()
		k++
	}
	rx.Seek(at)
	if k == drainBatch {
		rx.Prefetch(drainBatch)
	}
	return k
}

// roomFreed wakes a peer that waits for room.
//
//go:noinline
func (e *ep) roomFreed() {
	if e.fenced {
		e.Barrier()
	}
	e.wake()
}
