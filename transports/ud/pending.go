package ud

import (
	"math"
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
	f.enterWait()
	defer f.leave()
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		// If the flow has not started, the first operation found the async goroutine inside.
		if !e.s.Started() {
			e.start()
		}
		if e.shortAt != f.passes+1 && e.fits() {
			return ucs.Busy
		}
		e.gate = ucs.NoResource
		if !e.waits {
			e.waits = true
			f.waiting = append(f.waiting, e)
		}
	}
	f.more = true
	f.stats.Inc(statPending)
	e.pend.Add(t)
	return ucs.OK
}

// PendingPurge empties the queue.
func (e *endpoint) PendingPurge(fn func(uct.Token)) {
	e.f.enterWait()
	e.pend.Purge(func() { e.gate = e.status }, func(t uct.Token) {
		e.f.leave()
		fn(t)
		e.f.enterWait()
	})
	e.f.leave()
}

// fits reports whether a packet as long as the last refused one can be sent now.
func (e *endpoint) fits() bool {
	return e.s.Room() && e.f.credit() && e.f.tx.free(max(e.want, arq.HeadLen))
}

// offerAll passes pending tokens to the handler of endpoints whose resources suffice now.
// It returns the number of operations that the handler retried.
//
//go:noinline
func (f *iface) offerAll() (moved int) {
	for _, e := range f.waiting {
		moved += e.offer(math.MaxInt)
	}
	f.keepWaiting()
	return moved
}

// keepWaiting removes the endpoints without pending operations from waiting.
func (f *iface) keepWaiting() {
	kept := f.waiting[:0]
	for _, e := range f.waiting {
		if e.waits = e.pend.Len() > 0 && e.status == ucs.OK; e.waits {
			kept = append(kept, e)
		}
	}
	clear(f.waiting[len(kept):])
	f.waiting = kept
}

// unattended reports whether a pending operation can be retried now. The caller is inside
// owner.
func (f *iface) unattended() bool {
	return slices.ContainsFunc(f.waiting, func(e *endpoint) bool { return e.status == ucs.OK && e.fits() })
}

// resumeSome is the number of operations retried between two readings of the clock.
const resumeSome = 4

// PendingLeft: see uct.Unattended.
func (f *iface) PendingLeft() bool {
	if f.closed || !f.enter() {
		return !f.closed
	}
	defer f.leave()
	return f.unattended()
}

// ResumePending: see uct.Unattended. Sections receive the ACKs that free resources.
func (f *iface) ResumePending(until ucs.Time) (moved int, left bool) {
	if f.closed || !f.enter() {
		return 0, !f.closed
	}
	f.depth++
	f.reap()
	for n := 1; n > 0 && ucs.Now() < until; moved += n {
		n = 0
		f.offerAt++ // rotated, so that a call that reaches until does not always favor the same endpoint
		for i, k := uint(0), uint(len(f.waiting)); i < k && ucs.Now() < until; i++ {
			n += f.waiting[(f.offerAt+i)%k].offer(resumeSome)
		}
	}
	f.keepWaiting()
	left = f.unattended()
	f.flushPosts()
	f.collecting = false
	if f.asleep && moved > 0 { // the program may sleep until an operation has completed
		f.wake.Raise()
	}
	f.depth--
	f.leave()
	return moved, left
}

// offer passes at most the given number of pending operations to the handler.
func (e *endpoint) offer(most int) int {
	if e.status != ucs.OK || e.pend.Len() == 0 || !e.fits() {
		return 0
	}
	e.gate = ucs.OK
	k := e.pend.DispatchSome(e.f.handler, most)
	if e.pend.Len() > 0 && e.status == ucs.OK {
		e.gate = ucs.NoResource
	}
	return k
}
