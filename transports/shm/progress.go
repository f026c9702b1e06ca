package shm

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/uct"
)

// servicePasses is how many passes go between looks at the sockets (a power of
// two): 15-25 µs of polling. A look is a system call: each 1,024 passes it was 4 %
// of an 8-byte latency.
const servicePasses = 2048

// stalePasses is after how many passes without a message a connection makes
// room among the hot ones.
const stalePasses = 4096

// drainBatch is the most messages taken from one connection in a pass: as UCX's
// mm, so that a window of posted receives is not overrun into unexpected ones.
const drainBatch = 16

// Progress polls the hot connections' cells and four of the others' head words.
// A leaf until something is found, so that nothing is spilled.
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

// passMore is the rest of a pass that polling the hot connections is not all of.
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

// differ compares four head words, which peers write, with what they were.
func differ(h, seen *[inboxStride]uint64) bool {
	return atomic.LoadUint64(&h[0])^seen[0]|atomic.LoadUint64(&h[1])^seen[1]|
		atomic.LoadUint64(&h[2])^seen[2]|atomic.LoadUint64(&h[3])^seen[3] != 0
}

// hotHit serves the hot connections.
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

// drainHot begins with another connection each time, so that a busy peer does
// not use up the budget of the rest.
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

// coldHit serves the connections whose head words changed.
//
//go:noinline
func (f *iface) coldHit(budget int) int {
	f.enter()
	c := f.cold
	f.cold = c + inboxStride // the next ones' turn, however busy these are
	n := f.hints(c, inboxStride, budget)
	return n + f.leave()
}

// enter and leave bracket callbacks.
func (f *iface) enter() {
	if f.armed {
		f.disarm()
	}
	f.busy++
}

// leave counts the pass, so that a worker that is never idle serves its sockets
// too.
func (f *iface) leave() int {
	f.busy--
	f.passes++
	if f.passes&(servicePasses/4-1) == 0 || f.extra {
		return f.slowPass() // for head words alone it does nothing
	}
	return 0
}

// slowPass does what is not due in each pass.
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

// drain hands at most budget waiting messages of e to the handler, as one batch.
// One that waits alone needs no loop.
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
		d.ID, d.Source = uct.AMID(ring.ID(first))%uct.NumAMIDs, e.source
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

// drainMore adds messages to the k that drain has taken, up to budget, and gives
// their number.
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
				if k == 0 { // else what came before it is delivered first
					f.follow(e, first)
					return 0
				}
				break
			}
		}
		d.Off, d.Len, d.Header = off, n, at.Header()
		d.ID, d.Source = uct.AMID(ring.ID(first))%uct.NumAMIDs, e.source
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
