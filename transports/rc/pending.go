package rc

import (
	"math"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// hasRoom reports whether the operation that got NoResource last can be posted now.
func (e *ep) hasRoom() bool {
	return e.txReady() && e.txQueue.room() && (!e.needsBuf || e.f.tx.Free() > 0)
}

// PendingAdd queues t until the operation that got NoResource last can be posted.
func (e *ep) PendingAdd(t uct.Token) uct.Status {
	e.f.EnterWait()
	defer e.f.Leave()
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		if e.hasRoom() {
			e.updateFastPath()
			return ucs.Busy
		}
		if e.txQueue == nil {
			e.ensureConnected()
		}
		if e.status != ucs.OK {
			return e.status
		}
	}
	e.pend.Add(t)
	e.updateFastPath()
	if e.Add(inWaiting) {
		e.f.waiting = append(e.f.waiting, e)
	}
	e.f.stats.Inc(statPending)
	return ucs.OK
}

// PendingPurge removes all tokens from the pending queue and passes them to f.
func (e *ep) PendingPurge(f func(uct.Token)) {
	e.f.EnterWait()
	e.pend.Purge(e.updateFastPath, func(t uct.Token) {
		e.f.Leave()
		f(t)
		e.f.EnterWait()
	})
	e.f.Leave()
}

// dispatchPending lets the handler retry pending operations where there is room, and returns how many
// it consumed. Each call begins with the next endpoint.
//
//go:noinline
func (f *iface) dispatchPending() (moved int) {
	n := len(f.waiting)
	f.dispatchAt++
	for i := range n {
		moved += f.waiting[(f.dispatchAt+i)%n].dispatchPending(math.MaxInt)
	}
	f.trimWaiting()
	return moved
}

// trimWaiting removes endpoints without pending operations from waiting.
func (f *iface) trimWaiting() {
	kept := f.waiting[:0]
	for _, e := range f.waiting {
		if e.pend.Len() > 0 {
			kept = append(kept, e)
		} else {
			e.Drop(inWaiting)
		}
	}
	clear(f.waiting[len(kept):])
	f.waiting = kept
}

// hasResumable reports whether a connected endpoint has pending operations. The caller is inside.
func (f *iface) hasResumable() bool {
	return slices.ContainsFunc(f.waiting, func(e *ep) bool { return e.txQueue != nil && e.status == ucs.OK })
}

// resumeBatch is the number of operations resumed between two readings of the clock.
const resumeBatch = 4

// PendingLeft implements uct.Unattended.
func (f *iface) PendingLeft() bool {
	if f.closed || !f.Enter() {
		return !f.closed
	}
	defer f.Leave()
	return f.hasResumable()
}

// ResumePending implements uct.Unattended. It polls the send completion queue, which frees send
// slots, but not the receive completion queue.
func (f *iface) ResumePending(until ucs.Time) (moved int, left bool) {
	if f.closed || !f.Enter() {
		return 0, !f.closed
	}
	f.ProgressDepth++
	f.pollSendCQ(uct.MaxBatch)
	for n := 1; n > 0 && ucs.Now() < until; moved += n {
		n = 0
		f.dispatchAt++ // so that a pass that ends early does not always favor the same endpoint
		for i, k := 0, len(f.waiting); i < k && ucs.Now() < until; i++ {
			n += f.waiting[(f.dispatchAt+i)%k].dispatchPending(resumeBatch)
		}
	}
	f.trimWaiting()
	left = f.hasResumable()
	if f.queuedEvents != 0 {
		moved += f.queuedEvents
		f.deliverEvents()
	}
	f.flushPostList()
	if f.armed && moved > 0 { // the program may sleep until an operation completes
		f.wake.Raise()
	}
	f.ProgressDepth--
	f.Leave()
	return moved, left
}

// dispatchPending lets the handler retry at most most pending operations of e.
func (e *ep) dispatchPending(maxOps int) int {
	if e.status != ucs.OK || e.pend.Len() == 0 || !e.hasRoom() {
		return 0
	}
	e.q = e.txQueue
	k := e.pend.DispatchSome(e.f.handler, maxOps)
	e.updateFastPath()
	return k
}
