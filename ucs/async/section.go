package async

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// maxSection is the longest time a section should take. Longer ones are counted.
const maxSection = 50 * time.Microsecond

// maxRecheck bounds the time between two checks of a worker that stays inside.
const maxRecheck = 16 * time.Millisecond

// ownerState is the async goroutine's state of an owner. Only that goroutine accesses it.
type ownerState struct {
	lastInside uint64   // Owner.inside at the last check
	lastChange ucs.Time // time since which Owner.inside has had that value
	lastNext   ucs.Time // Owner.nextTimer at the last check

	ready   []*ownerWatch // ready descriptors, which report nothing more before rearm
	readyAt ucs.Time      // time at which the first of them became ready

	outsideAt ucs.Time // time of the next call of Owner.outsideFunc
}

// noteReady records that a descriptor of the owner is ready. It runs in the async goroutine.
func (o *Owner) noteReady(w *ownerWatch) {
	if len(o.ready) == 0 {
		o.readyAt = ucs.Now()
	}
	o.ready = append(o.ready, w)
}

// service runs what is due for the owner, and returns the time of the next check.
func (o *Owner) service(now ucs.Time) ucs.Time {
	wake := o.serviceInside(now)
	if o.outsideAt > now {
		return min(wake, o.outsideAt)
	}
	o.outsideAt = never
	if d := o.outsideFunc(); d >= 0 {
		o.outsideAt = ucs.Now().Add(d)
	}
	return min(wake, o.outsideAt)
}

// serviceInside runs a section if a timer or descriptor is due and the worker does not poll.
// It returns the time of the next check.
//
// A worker that polls has a period to run its timers itself. A worker that is inside, or
// has entered since the last check, is checked again after a period. The longer Owner.inside
// has been the same, the rarer are the checks, up to maxRecheck.
func (o *Owner) serviceInside(now ucs.Time) ucs.Time {
	// The worker is idle if it has been outside, without a pass, for a period. If it stays inside,
	// it was preempted, is in a long callback, or was left inside by a panic.
	count := o.inside.Load()
	if count != o.lastInside || o.lastChange == 0 {
		o.lastInside, o.lastChange = count, now
	}
	idle := count&1 == 0 && now.Sub(o.lastChange) >= o.a.period
	// A section runs expired timers at their deadline if the worker is idle. Otherwise it does so
	// a period later, to let the worker run them.
	o.lastNext = ucs.Time(o.nextTimer.Load())
	wake := o.lastNext
	if !idle && wake != never {
		wake = wake.Add(o.a.period)
	}
	wake = min(wake, o.readyDue())
	switch {
	case wake > now:
		return wake
	case !idle: // the worker may handle it itself
		if o.readyDue() <= now {
			o.rearm()
		}
		return now.Add(max(o.a.period, min(now.Sub(o.lastChange)/4, maxRecheck)))
	case !o.section(now):
		return now.Add(o.a.period)
	}
	o.rearm()
	o.lastNext = ucs.Time(o.nextTimer.Load())
	return max(min(o.lastNext, o.readyDue()), now) // now: more timers have expired than one section runs
}

// readyDue returns the time at which a section runs the functions of ready descriptors.
// It is a period later even if the worker sleeps, since the same event wakes the worker.
func (o *Owner) readyDue() ucs.Time {
	if len(o.ready) == 0 {
		return never
	}
	return o.readyAt.Add(o.a.period)
}

// rearm lets the ready descriptors report again, at once if they are still ready. A function
// of CallInside stays in the list while it is wanted.
func (o *Owner) rearm() {
	o.ready = slices.DeleteFunc(o.ready, func(w *ownerWatch) bool {
		if w.wanted != nil {
			return !w.wanted.Load()
		}
		o.a.sleep.set.rearm(w.fd)
		return true
	})
	o.readyAt = ucs.Now()
}

// section runs the expired timers and the functions of ready descriptors in place of the
// worker. It returns false without running them if the worker has entered since the check.
//
// Invariant: no function runs unless Owner.inside, read after the gate was closed, is even.
func (o *Owner) section(now ucs.Time) bool {
	word, err := o.closeGate()
	defer o.openGate()
	if err != nil || word != o.lastInside { // equal and therefore even: outside, and not inside since
		o.a.stats.skipped.Add(1)
		return false
	}
	if o.closed {
		return true
	}
	o.a.stats.sections.Add(1)
	began := ucs.Now()
	o.Poll(now)
	for _, w := range o.ready {
		if !w.removed && (w.wanted == nil || w.wanted.Load()) {
			w.fn()
		}
	}
	if ucs.Now().Sub(began) > maxSection {
		o.a.stats.overruns.Add(1)
	}
	return true
}

// closeGate closes the gate and returns the worker's counter. If it is even, the worker is
// outside and cannot enter before openGate. With an error the counter must not be relied on.
func (o *Owner) closeGate() (word uint64, err error) {
	o.gate.Swap(o.a.openGateWord | gateAsync)
	if plainInside && o.a.openGateWord&gateFence == 0 {
		// This is the counterpart of the plain store in Enter.
		err = shmem.PrivateBarrier()
	}
	return o.inside.Load(), err
}

// openGate opens the gate. An Enter that loads this value sees all writes made in the section.
func (o *Owner) openGate() { o.gate.Store(o.a.openGateWord) }
