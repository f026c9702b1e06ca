package rc

import (
	"errors"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
)

// While the program computes, the async goroutine makes connections in its stead:
// what peers do without this side's help, and what they send into its receives, does
// not wait for it then. A section calls nobody: what it brings up waits for Progress.
// With ThreadMulti the operations that waited for a connection are resumed after the
// section: see uct.IfaceConfig.Unattended.

const (
	// sectionNotes is about how many connection messages a section takes; each may
	// take a queue pair.
	sectionNotes = 8
	// sectionAgain is when the next one goes on where there are more.
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
	_, _ = f.ud.hear(1) // arms
	err = f.owner.Watch(f.channel.FD(), f.signalled)
	if errors.Is(err, ucs.ErrUnsupported) { // connecting needs Progress, then
		return nil
	}
	return err
}

// signalled runs in the async goroutine, inside: something has come while the program
// does not look.
func (f *iface) signalled() {
	f.section(ucs.Now(), f.drain())
}

// alarmed runs inside, when the alarm is due: in the worker's Progress, which does
// everything itself, or in the async goroutine.
func (f *iface) alarmed(now ucs.Time) {
	f.alarmAt = 0
	if f.busy == 0 {
		f.section(now, false)
	}
}

// wakeAt has alarmed run at a time, or before it.
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

// section does what the worker owes peers that connect, and calls nobody. It wakes a
// worker that sleeps if it did anything, which may be news, or if an event was the
// worker's.
func (f *iface) section(now ucs.Time, others bool) {
	if f.closed {
		return
	}
	f.stats.Inc(statSections)
	if f.reserved > 0 { // a message has its place: its connection may not move under it
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

// enter goes inside; false: the async goroutine is there, for longer than its
// sections take. Calls from callbacks are inside already.
func (f *iface) enter() bool { return f.busy != 0 || f.owner.Enter() || f.owner.EnterSoon() }

// enterWait is enter for what is not refused.
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
