package nic

import (
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/async"
)

// Section is the async critical section of an interface over verbs. The interface embeds it.
//
// While the program computes and does not call Progress, the async goroutine runs sections in
// place of the worker. A section starts at an event of the interface's completion channel, at
// the alarm, or after RunSoon. It does what peers wait for and what time requires.
//
// Invariant: the worker is inside between Enter and Leave, and the async goroutine is inside
// while it runs a section. At most one of them is inside, and only that one accesses the
// interface's state. A section runs only while the worker has been outside for a period, and
// it calls no handler. What it receives and detects is queued, and the next Progress
// reports it. Operations that wait in pending queues may be resumed after a section, by
// the function of uct.IfaceConfig.Unattended, which acts as the worker.
type Section struct {
	owner *async.Owner
	// ProgressDepth counts the nested calls of Progress, ResumePending and Close. While it is
	// not 0, calls on the interface come from its callbacks and are inside already.
	ProgressDepth int

	conf      SectionConfig
	alarmFunc func(now ucs.Time)
	alarm     async.Timer
	alarmAt   ucs.Time     // 0: the alarm is not set
	close     func() error // nil: not open

	deviceFailed atomic.Bool // and the interface has not handled it
}

// SectionConfig holds the parameters of OpenSection.
type SectionConfig struct {
	// FD is the descriptor of the completion channel, which is readable when it has an event.
	FD int
	// Arm requests the first event. It is called inside.
	Arm func()
	// Run runs a section, inside. If event is set, the channel is readable, and Run consumes its
	// events.
	Run func(now ucs.Time, event bool)
	// Slack is the time by which the alarm may be later than SetAlarm requires. It saves
	// setting the alarm again.
	Slack time.Duration
	// Unattended is that of uct.IfaceConfig; nil: none.
	Unattended func() time.Duration
}

// Never is a deadline that does not expire.
const Never = ucs.Time(math.MaxInt64)

// OpenSection registers the interface with the process's async goroutine.
//
// Errors: those of the system. With ucs.ErrUnsupported the section is open, but no event of the
// channel starts it, on systems without epoll.
func (s *Section) OpenSection(c SectionConfig) error {
	a, err := acquireAsync()
	if err != nil {
		return err
	}
	if s.owner, err = a.NewOwner(); err != nil {
		return errors.Join(err, releaseAsync())
	}
	s.conf = c
	s.close = func() error { return errors.Join(s.owner.Close(), releaseAsync()) }
	s.alarmFunc = func(now ucs.Time) {
		s.alarmAt = 0
		if s.ProgressDepth == 0 { // in the async goroutine; the worker's Progress does the work itself
			s.conf.Run(now, false)
		}
	}
	s.owner.EnterWait()
	defer s.owner.Leave()
	if c.Unattended != nil {
		s.owner.SetOutside(c.Unattended)
	}
	c.Arm()
	return s.owner.Watch(c.FD, func() { c.Run(ucs.Now(), true) })
}

// CloseSection removes the registration. No section runs afterwards. The worker may still enter
// and leave. It must not be called inside. It is idempotent.
func (s *Section) CloseSection() error {
	if s.close == nil {
		return nil
	}
	closeOwner := s.close
	s.close = nil
	return closeOwner()
}

// Enter enters the section as the worker. It returns false if the async goroutine is inside for
// longer than its sections take. Calls from callbacks are inside already.
func (s *Section) Enter() bool {
	return s.ProgressDepth != 0 || s.owner.Enter() || s.owner.EnterYield()
}

// EnterWait is Enter for calls that cannot return NoResource: it waits.
func (s *Section) EnterWait() {
	if s.ProgressDepth == 0 && !s.owner.Enter() {
		s.owner.EnterWait()
	}
}

// Leave undoes Enter and EnterWait.
func (s *Section) Leave() {
	if s.ProgressDepth == 0 {
		s.owner.Leave()
	}
}

// SetAlarm starts a section at when, unless one starts earlier by the alarm. Never: it does
// nothing. It must be called inside.
func (s *Section) SetAlarm(when ucs.Time) {
	if when == Never || s.alarmAt != 0 && s.alarmAt <= when.Add(s.conf.Slack) {
		return
	}
	if s.alarmAt != 0 {
		s.owner.Cancel(s.alarm)
	}
	s.alarmAt = when
	s.alarm = s.owner.At(when, s.alarmFunc)
}

// AlarmSet reports whether the alarm is set. It must be called inside.
func (s *Section) AlarmSet() bool { return s.alarmAt != 0 }

// PollAlarm clears an expired alarm. Progress calls it and then does what a section would do.
func (s *Section) PollAlarm(now ucs.Time) { s.owner.Poll(now) }

// RunSoon starts a section once the worker has been outside for a period, and again after each
// period while wanted is true. Only callbacks for asynchronous events of the device may call it.
func (s *Section) RunSoon(wanted *atomic.Bool) {
	s.owner.CallInside(wanted, func() { s.conf.Run(ucs.Now(), false) })
}

// NoteDeviceFailure records that the device has failed, and starts a section. It is the interface's
// Watcher.OnFailure.
func (s *Section) NoteDeviceFailure() {
	s.deviceFailed.Store(true)
	s.RunSoon(&s.deviceFailed)
}

// TakeDeviceFailure reports, once, that the device has failed. It must be called inside.
func (s *Section) TakeDeviceFailure() bool {
	if !s.deviceFailed.Load() {
		return false
	}
	s.deviceFailed.Store(false)
	return true
}

// CallUnattended requests a call of SectionConfig.Unattended after this section, if resumable
// reports that a pending operation can be retried. Only a section may call it.
func (s *Section) CallUnattended(resumable func() bool) {
	if s.conf.Unattended != nil && resumable() {
		s.owner.CallOutside()
	}
}
