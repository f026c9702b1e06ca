package async

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// maxSection is the longest time a section should take. Longer ones are counted.
const maxSection = 50 * time.Microsecond

// maxRetry bounds the time between two checks of a worker that stays inside.
const maxRetry = 16 * time.Millisecond

// view is the async goroutine's state of an owner. Only that goroutine accesses it.
type view struct {
	count   uint64   // Owner.inside at the last check
	since   ucs.Time // time since which Owner.inside has had that value
	seenDue ucs.Time // Owner.next at the last check

	ready   []*watched // ready descriptors, which report nothing more before rearm
	readyAt ucs.Time   // time at which the first of them became ready

	outsideAt ucs.Time // time of the next call of Owner.outside
}

// noteReady records that a descriptor of the owner is ready. It runs in the async goroutine.
func (o *Owner) noteReady(w *watched) {
	if len(o.ready) == 0 {
		o.readyAt = ucs.Now()
	}
	o.ready = append(o.ready, w)
}

// serve runs what is due for the owner, and returns the time of the next check.
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

// serveInside runs a section if a timer or descriptor is due and the worker does not poll.
// It returns the time of the next check.
//
// A worker that polls has a period to run its timers itself. A worker that is inside, or
// has entered since the last check, is checked again after a period. The longer Owner.inside
// has been the same, the rarer are the checks, up to maxRetry.
func (o *Owner) serveInside(now ucs.Time) ucs.Time {
	o.seenDue = ucs.Time(o.next.Load())
	still := o.stands(now)
	wake := min(o.serveAt(still), o.readyServeAt())
	switch {
	case wake > now:
		return wake
	case !still: // the worker may handle it itself
		if o.readyServeAt() <= now {
			o.rearm()
		}
		return now.Add(max(o.a.period, min(now.Sub(o.since)/4, maxRetry)))
	case !o.section(now):
		return now.Add(o.a.period)
	}
	o.rearm()
	o.seenDue = ucs.Time(o.next.Load())
	return max(min(o.seenDue, o.readyServeAt()), now) // now: more timers have expired than one section runs
}

// serveAt returns the time at which a section runs the timers. It is their deadline if the
// worker does not poll (still). Otherwise it is a period later, to let the worker run them.
func (o *Owner) serveAt(still bool) ucs.Time {
	if still || o.seenDue == never {
		return o.seenDue
	}
	return o.seenDue.Add(o.a.period)
}

// readyServeAt returns the time at which a section runs the functions of ready descriptors.
// It is a period later even if the worker sleeps, since the same event wakes the worker.
func (o *Owner) readyServeAt() ucs.Time {
	if len(o.ready) == 0 {
		return never
	}
	return o.readyAt.Add(o.a.period)
}

// rearm lets the ready descriptors report again, at once if they are still ready. A function
// of Soon stays in the list while it is wanted.
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

// stands reports whether the worker has been outside, without a pass, for a period.
func (o *Owner) stands(now ucs.Time) bool {
	count := o.inside.Load()
	if count != o.count || o.since == 0 {
		o.count, o.since = count, now
	}
	inside := count&1 != 0 // preempted, in a long callback, or left inside by a panic
	return !inside && now.Sub(o.since) >= o.a.period
}

// section runs the expired timers and the functions of ready descriptors in place of the
// worker. It returns false without running them if the worker has entered since the check.
//
// Invariant: no function runs unless Owner.inside, read after the gate was closed, is even.
func (o *Owner) section(now ucs.Time) bool {
	word, err := o.raise()
	defer o.lower()
	if err != nil || word != o.count { // equal to o.count and therefore even: outside, and not inside since
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

// raise closes the gate and returns the worker's counter. If it is even, the worker is
// outside and cannot enter before lower. With an error the counter must not be relied on.
func (o *Owner) raise() (word uint64, err error) {
	o.gate.Swap(o.a.openGate | gateAsync)
	if plainInside && o.a.openGate&gateFence == 0 {
		// This is the counterpart of the plain store in Enter.
		err = shmem.PrivateBarrier()
	}
	return o.inside.Load(), err
}

// lower opens the gate. An Enter that loads this value sees all writes made in the section.
func (o *Owner) lower() { o.gate.Store(o.a.openGate) }
