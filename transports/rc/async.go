package rc

import (
	"errors"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
)

// While the program computes and does not call Progress, the async goroutine runs critical
// sections for the interface: it opens connections and processes connection messages. Messages
// that peers then send arrive in posted receives and wait for Progress.
//
// Invariant: a section runs only while the worker is outside of owner, and it makes no
// callback. Failures and messages that it finds are reported by the next Progress. While a
// reservation is open, a section does nothing: its QP must not change.
//
// With ThreadMulti, operations that waited for a connection are resumed after the section; see
// uct.IfaceConfig.Unattended.

const (
	// sectionMsgs bounds roughly the number of connection messages that a section processes.
	// Each may create a QP.
	sectionMsgs = 8
	// sectionRetry is the delay of the next section if work remains.
	sectionRetry = 50 * time.Microsecond
)

func (f *iface) openAsync(unattended func() time.Duration) (err error) {
	if f.owner, err = nic.NewOwner(); err != nil {
		return err
	}
	f.ownerOpen = true
	f.owner.EnterWait()
	defer f.owner.Leave()
	if f.hasUnattended = unattended != nil; f.hasUnattended {
		f.owner.SetOutside(unattended)
	}
	f.alarmFunc = f.handleAlarm
	_, _ = f.ud.poll(1) // arms the completion queue
	err = f.owner.Watch(f.channel.FD(), f.handleEvent)
	if errors.Is(err, ucs.ErrUnsupported) { // connections are then opened in Progress only
		return nil
	}
	return err
}

// handleEvent runs a section for an event of the completion channel. The async goroutine calls
// it, inside.
func (f *iface) handleEvent() {
	f.asyncSection(ucs.Now(), f.drainEvents())
}

// handleAlarm runs at the time of the alarm, inside: in the async goroutine, or in the worker's
// Progress, which does the work itself.
func (f *iface) handleAlarm(now ucs.Time) {
	f.alarmAt = 0
	if f.progressDepth == 0 {
		f.asyncSection(now, false)
	}
}

// setAlarm sets the alarm to a time, unless it is set to an earlier one.
func (f *iface) setAlarm(when ucs.Time) {
	if f.alarmAt != 0 && f.alarmAt <= when {
		return
	}
	if f.alarmAt != 0 {
		f.owner.Cancel(f.alarm)
	}
	f.alarmAt = when
	f.alarm = f.owner.At(when, f.alarmFunc)
}

// asyncSection processes connection messages, expired timers and access errors, without callbacks.
// It wakes a sleeping worker if it did any of this, or if others reports an event for
// the worker.
func (f *iface) asyncSection(now ucs.Time, workerEvent bool) {
	if f.closed {
		return
	}
	f.stats.Inc(statSections)
	if f.reserved > 0 { // the QP of a reserved message must not change
		f.setAlarm(now.Add(sectionRetry))
		if f.armed && workerEvent {
			f.wake.Raise()
		}
		return
	}
	f.handleQPErrors()
	received, polledEvent := f.ud.poll(sectionMsgs)
	ticked := f.expireTimers(now)
	if f.hasUnattended && f.hasResumable() {
		f.owner.CallOutside()
	}
	if f.armed && (workerEvent || polledEvent || ticked || received > 0) {
		f.wake.Raise()
	}
}

// enter enters the critical section of the worker. It returns false if the async goroutine is
// inside, for longer than its sections take. Calls from callbacks are inside already.
func (f *iface) enter() bool { return f.progressDepth != 0 || f.owner.Enter() || f.owner.EnterYield() }

// enterWait is enter for calls that cannot return NoResource: it waits.
func (f *iface) enterWait() {
	if f.progressDepth == 0 && !f.owner.Enter() {
		f.owner.EnterWait()
	}
}

func (f *iface) leave() {
	if f.progressDepth == 0 {
		f.owner.Leave()
	}
}
