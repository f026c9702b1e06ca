package async

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// maxSection is what a section may take; longer ones are counted.
const maxSection = 50 * time.Microsecond

// maxRetry bounds the time between two looks at a worker that stays inside.
const maxRetry = 16 * time.Millisecond

// view is what the async goroutine remembers of an owner. Nobody else touches
// it.
type view struct {
	count   uint64   // the worker's word when last looked at ...
	since   ucs.Time // ... and since when it has been that
	seenDue ucs.Time // Owner.next when last looked at

	ready   []*watched // they do not tell again before rearm
	readyAt ucs.Time   // when the first of them told

	outsideAt ucs.Time // when Owner.outside is called next
}

// noteReady runs in the async goroutine when a descriptor of the owner is ready.
func (o *Owner) noteReady(w *watched) {
	if len(o.ready) == 0 {
		o.readyAt = ucs.Now()
	}
	o.ready = append(o.ready, w)
}

// serve does what the owner owes at now, and returns when to look again.
func (o *Owner) serve(now ucs.Time) ucs.Time {
	wake := o.serveInside(now)
	if o.outsideAt > now {
		return min(wake, o.outsideAt)
	}
	o.outsideAt = never
	if d := o.outside(); d >= 0 {
		o.outsideAt = ucs.Now().Add(d)
	}
	return min(wake, o.outsideAt)
}

// serveInside runs a section if the owner's worker does not do what is due, and
// returns when to look again.
func (o *Owner) serveInside(now ucs.Time) ucs.Time {
	o.seenDue = ucs.Time(o.next.Load())
	still := o.stands(now)
	wake := min(o.serveAt(still), o.readyServeAt())
	switch {
	case wake > now:
		return wake
	case !still: // it may be that the worker does it itself
		if o.readyServeAt() <= now {
			o.rearm()
		}
		return now.Add(max(o.a.period, min(now.Sub(o.since)/4, maxRetry)))
	case !o.section(now):
		return now.Add(o.a.period)
	}
	o.rearm()
	o.seenDue = ucs.Time(o.next.Load())
	return max(min(o.seenDue, o.readyServeAt()), now) // now: there was more than one section takes
}

// serveAt is when the timers become the goroutine's business: at once when due
// if the worker does not poll anyway, else after giving it a period to run them.
func (o *Owner) serveAt(still bool) ucs.Time {
	if still || o.seenDue == never {
		return o.seenDue
	}
	return o.seenDue.Add(o.a.period)
}

// readyServeAt is the same for descriptors. A worker that sleeps on them wakes
// with the same event, so it always gets its period.
func (o *Owner) readyServeAt() ucs.Time {
	if len(o.ready) == 0 {
		return never
	}
	return o.readyAt.Add(o.a.period)
}

// rearm lets the descriptors tell again, at once if they are still ready. A function of
// Soon stays while it is wanted.
func (o *Owner) rearm() {
	o.ready = slices.DeleteFunc(o.ready, func(w *watched) bool {
		if w.wanted != nil {
			return !w.wanted.Load()
		}
		o.a.sleep.set.rearm(w.fd)
		return true
	})
	o.readyAt = ucs.Now()
}

// stands reports whether the worker has been outside, without a pass, for a
// whole period.
func (o *Owner) stands(now ucs.Time) bool {
	count := o.inside.Load()
	if count != o.count || o.since == 0 {
		o.count, o.since = count, now
	}
	inside := count&1 != 0 // preempted, in a long callback, or left by a panic
	return !inside && now.Sub(o.since) >= o.a.period
}

// section runs the owner's due timers and ready descriptors in the worker's
// stead; false if the worker came back first.
func (o *Owner) section(now ucs.Time) bool {
	word, err := o.raise()
	defer o.lower()
	if err != nil || word != o.count { // the same and thus even: outside, and not back meanwhile
		o.a.stats.refused.Add(1)
		return false
	}
	if o.dead {
		return true
	}
	o.a.stats.sections.Add(1)
	began := ucs.Now()
	o.Poll(now)
	for _, w := range o.ready {
		if w.due() {
			w.fn()
		}
	}
	if ucs.Now().Sub(began) > maxSection {
		o.a.stats.overruns.Add(1)
	}
	return true
}

// raise keeps the worker out from now on and gives its word: if that is even
// the worker is outside and cannot get in before lower. An error says that the
// word means nothing.
func (o *Owner) raise() (word uint64, err error) {
	o.gate.Swap(o.a.openGate | gateAsync)
	if plainInside && o.a.openGate&gateFence == 0 {
		// The other half of this barrier is in Enter.
		err = shmem.PrivateBarrier()
	}
	return o.inside.Load(), err
}

// lower lets the worker in again. What was written before is visible to the
// Enter that reads this.
func (o *Owner) lower() { o.gate.Store(o.a.openGate) }
