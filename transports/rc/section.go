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
	// sectionNotes bounds roughly the number of connection messages that a section processes.
	// Each may create a QP.
	sectionNotes = 8
	// sectionAgain is the delay of the next section if work remains.
	sectionAgain = 50 * time.Microsecond
)

func (f *iface) openAsync(unattended func() time.Duration) (err error) {
	if f.owner, err = nic.NewOwner(); err != nil {
		return err
	}
	f.owned = true
	f.owner.EnterWait()
	defer f.owner.Leave()
	if f.watched = unattended != nil; f.watched {
		f.owner.SetOutside(unattended)
	}
	f.onAlarm = f.alarmed
	_, _ = f.ud.hear(1) // arms the completion queue
	err = f.owner.Watch(f.channel.FD(), f.signalled)
	if errors.Is(err, ucs.ErrUnsupported) { // connections are then opened in Progress only
		return nil
	}
	return err
}

// signalled runs a section for an event of the completion channel. The async goroutine calls
// it, inside.
func (f *iface) signalled() {
	f.section(ucs.Now(), f.drain())
}

// alarmed runs at the time of the alarm, inside: in the async goroutine, or in the worker's
// Progress, which does the work itself.
func (f *iface) alarmed(now ucs.Time) {
	f.alarmAt = 0
	if f.busy == 0 {
		f.section(now, false)
	}
}

// wakeAt sets the alarm to a time, unless it is set to an earlier one.
func (f *iface) wakeAt(when ucs.Time) {
	if f.alarmAt != 0 && f.alarmAt <= when {
		return
	}
	if f.alarmAt != 0 {
		f.owner.Cancel(f.alarm)
	}
	f.alarmAt = when
	f.alarm = f.owner.At(when, f.onAlarm)
}

// section processes connection messages, expired timers and access errors, without callbacks.
// It wakes a sleeping worker if it did any of this, or if others reports an event for
// the worker.
func (f *iface) section(now ucs.Time, others bool) {
	if f.closed {
		return
	}
	f.stats.Inc(statSections)
	if f.reserved > 0 { // the QP of a reserved message must not change
		f.wakeAt(now.Add(sectionAgain))
		if f.armed && others {
			f.wake.Raise()
		}
		return
	}
	f.takeRefused()
	heard, foreign := f.ud.hear(sectionNotes)
	ticked := f.tick(now)
	if f.watched && f.unattended() {
		f.owner.CallOutside()
	}
	if f.armed && (others || foreign || ticked || heard > 0) {
		f.wake.Raise()
	}
}

// enter enters the critical section of the worker. It returns false if the async goroutine is
// inside, for longer than its sections take. Calls from callbacks are inside already.
func (f *iface) enter() bool { return f.busy != 0 || f.owner.Enter() || f.owner.EnterSoon() }

// enterWait is enter for calls that cannot return NoResource: it waits.
func (f *iface) enterWait() {
	if f.busy == 0 && !f.owner.Enter() {
		f.owner.EnterWait()
	}
}

func (f *iface) leave() {
	if f.busy == 0 {
		f.owner.Leave()
	}
}
