package ud

import (
	"slices"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// PendingAdd queues t. It returns Busy if the operation that last got NoResource can be
// retried now. Resources that the async goroutine has freed since count only after the
// next Progress.
func (e *endpoint) PendingAdd(t uct.Token) uct.Status {
	f := e.f
	f.EnterWait()
	defer f.Leave()
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		// If the flow has not started, the first operation found the async goroutine inside.
		if !e.s.Started() {
			e.start()
		}
		if e.refusedPass != f.passes+1 && e.hasResources() {
			return ucs.Busy
		}
		e.opStatus = ucs.NoResource
		if !e.inWaiting {
			e.inWaiting = true
			f.waiting = append(f.waiting, e)
		}
	}
	f.restNeeded = true
	f.stats.Inc(statPending)
	e.pend.Add(t)
	return ucs.OK
}

// PendingPurge empties the queue.
func (e *endpoint) PendingPurge(fn func(uct.Token)) {
	e.f.EnterWait()
	e.pend.Purge(func() { e.opStatus = e.status }, func(t uct.Token) {
		e.f.Leave()
		fn(t)
		e.f.EnterWait()
	})
	e.f.Leave()
}

// hasResources reports whether a packet as long as the last refused one can be sent now.
func (e *endpoint) hasResources() bool {
	return e.s.CanPush() && e.f.canPost() && e.f.tx.hasFree(max(e.refusedLen, arq.HeaderLen))
}

// dispatchPending passes at most maxOps pending operations to the handler, if there are resources.
// It returns the number of operations that the handler retried.
func (e *endpoint) dispatchPending(maxOps int) int {
	if e.status != ucs.OK || e.pend.Len() == 0 || !e.hasResources() {
		return 0
	}
	e.opStatus = ucs.OK
	k := e.pend.DispatchSome(e.f.handler, maxOps)
	if e.pend.Len() > 0 && e.status == ucs.OK {
		e.opStatus = ucs.NoResource
	}
	return k
}

// trimWaiting removes the endpoints without pending operations from waiting.
func (f *iface) trimWaiting() {
	kept := f.waiting[:0]
	for _, e := range f.waiting {
		if e.inWaiting = e.pend.Len() > 0 && e.status == ucs.OK; e.inWaiting {
			kept = append(kept, e)
		}
	}
	clear(f.waiting[len(kept):])
	f.waiting = kept
}

// hasResumable reports whether a pending operation can be retried now. The caller is inside
// owner.
func (f *iface) hasResumable() bool {
	return slices.ContainsFunc(f.waiting, func(e *endpoint) bool { return e.status == ucs.OK && e.hasResources() })
}

// resumeBatch is the number of operations retried between two readings of the clock.
const resumeBatch = 4

// PendingLeft: see uct.Unattended.
func (f *iface) PendingLeft() bool {
	if f.state == ifaceClosed || !f.Enter() {
		return f.state != ifaceClosed
	}
	defer f.Leave()
	return f.hasResumable()
}

// ResumePending: see uct.Unattended. Sections receive the ACKs that free resources.
func (f *iface) ResumePending(until ucs.Time) (moved int, left bool) {
	if f.state == ifaceClosed || !f.Enter() {
		return 0, f.state != ifaceClosed
	}
	f.ProgressDepth++
	f.pollSendCQ()
	for n := 1; n > 0 && ucs.Now() < until; moved += n {
		n = 0
		f.dispatchAt++ // rotated, so that a call that reaches until does not always favor the same endpoint
		for i, k := uint(0), uint(len(f.waiting)); i < k && ucs.Now() < until; i++ {
			n += f.waiting[(f.dispatchAt+i)%k].dispatchPending(resumeBatch)
		}
	}
	f.trimWaiting()
	left = f.hasResumable()
	f.flushPosts()
	f.batching = false
	if f.state == ifaceSleeping && moved > 0 { // the program may sleep until an operation has completed
		f.wake.Raise()
	}
	f.ProgressDepth--
	f.Leave()
	return moved, left
}
