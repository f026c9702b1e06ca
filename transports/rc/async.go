package rc

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// While the program computes, the async goroutine runs sections in place of the worker; see
// nic.Section for the exclusion. They open connections and process connection messages.
// Messages that peers then send arrive in posted receives and wait for Progress.
//
// Invariant: a section makes no callback. The next Progress reports the failures that it
// detects. While a reservation is open, a section does nothing: its QP must not change.

const (
	// sectionMsgs bounds roughly the number of connection messages that a section processes.
	// Each may create a QP.
	sectionMsgs = 8
	// sectionRetry is the delay of the next section if work remains.
	sectionRetry = 50 * time.Microsecond
)

// runSection processes connection messages, expired timers and access errors, without callbacks.
// It wakes a sleeping worker if it did any of this, or if event is set and the completion
// channel has an event for the worker.
func (f *iface) runSection(now ucs.Time, event bool) {
	workerEvent := event && f.drainEvents()
	if f.closed {
		return
	}
	f.stats.Inc(statSections)
	if f.reserved > 0 { // the QP of a reserved message must not change
		f.SetAlarm(now.Add(sectionRetry))
		if f.armed && workerEvent {
			f.wake.Raise()
		}
		return
	}
	f.handleQPErrors()
	f.handleDeviceFailure()
	received, polledEvent := f.ud.poll(sectionMsgs)
	ticked := f.expireTimers(now)
	f.CallUnattended(f.hasResumable)
	if f.armed && (workerEvent || polledEvent || ticked || received > 0) {
		f.wake.Raise()
	}
}
