package ud

import (
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// The async critical section. When the worker has not called Progress for a period, the
// async goroutine runs section inside iface.owner, which excludes the worker. A section
// receives packets up to a bound, sends ACKs, runs timers and reaps send completions.
//
// Invariant: a section calls no handler. Messages, completions and failures are queued,
// and the next Progress reports them in order. If the worker sleeps in Arm and something
// is queued, the section signals iface.wake. If uct.IfaceConfig.Unattended is set, pending
// operations are resumed after the section, outside owner.

// pollTimeout is the time after a reading of the clock in Progress at which the alarm runs.
// The async goroutine takes over then if the worker has stopped polling.
const pollTimeout = time.Millisecond

// sectionPackets bounds the packets that one section receives.
const sectionPackets = 128

func (f *iface) openAsync(unattended func() time.Duration) (err error) {
	f.sweepEvery = max(min(f.conf.KeepAlive/4, time.Second), time.Millisecond)
	if f.owner, err = nic.NewOwner(); err != nil {
		return err
	}
	f.owner.EnterWait()
	defer f.owner.Leave()
	if f.hasUnattended = unattended != nil; f.hasUnattended {
		f.owner.SetOutside(unattended)
	}
	f.arm()
	return f.owner.Watch(f.channel.FD(), f.handleEvent)
}

// handleEvent handles an event of the receive CQ. It runs in the async goroutine, inside
// owner, while the worker does not poll.
func (f *iface) handleEvent() {
	f.disarm()
	f.asyncSection(ucs.Now())
}

// handleAlarm handles the alarm, inside owner. In the worker's Progress it only clears
// alarmAt, since Progress does all work. In the async goroutine it runs a section.
func (f *iface) handleAlarm(now ucs.Time) {
	f.alarmAt = 0
	if f.progressDepth == 0 {
		f.asyncSection(now)
	}
}

// setAlarm has alarmed run at a time or earlier.
func (f *iface) setAlarm(when ucs.Time) {
	if when == never || f.alarmAt != 0 && f.alarmAt <= when.Add(pollTimeout/2) {
		return
	}
	if f.alarmAt != 0 {
		f.owner.Cancel(f.alarm)
	}
	f.alarmAt = when
	f.alarm = f.owner.At(when, f.alarmFunc)
}

// asyncSection does what the peers wait for in place of the worker, without calling a handler.
// The async goroutine calls it inside owner.
func (f *iface) asyncSection(now ucs.Time) {
	if f.closed {
		return
	}
	f.stats.Inc(statSections)
	f.now, f.peerSearches = now, 0
	f.arm()
	more := true
	for received := 0; more && received < sectionPackets && f.canReceive(); {
		n := f.recvCQ.Poll(f.recvWCs[:pollBatch/2])
		if more = n > 0; more {
			f.processRecvs(f.recvWCs[:n])
			received += n
		}
	}
	f.updateRecvWindow()
	f.flushACKs()
	f.pollSendCQ()
	if now >= f.nextDeadline {
		f.expireTimers()
	}
	if now.Sub(f.sweptAt) > f.sweepEvery {
		f.sweep(now)
	}
	f.repost()
	f.flushPosts()
	f.batching = false
	if f.sleeping && f.hasReports() {
		f.wake.Raise()
	}
	if f.hasUnattended && f.hasResumable() {
		f.owner.CallOutside()
	}
	switch {
	case more && f.canReceive():
		f.setAlarm(now.Add(pollTimeout / 10))
	default:
		f.setAlarm(f.nextDeadline)
		if f.mux.HasReceivers() || len(f.eps) > len(f.freeEps) {
			f.setAlarm(now.Add(f.sweepEvery))
		}
	}
}

// canReceive reports whether a section may receive more. Received messages occupy receive
// buffers until the next Progress. With an empty queue it may always receive, since the
// worker may sleep until that message arrives.
func (f *iface) canReceive() bool { return f.delivered == len(f.descs) || f.spareRecvs() > pollBatch/2 }

// hasReports reports whether the next Progress would call the handler.
func (f *iface) hasReports() bool {
	if f.delivered < len(f.descs) || len(f.events) > 0 || len(f.failures) > 0 {
		return true
	}
	for _, e := range f.waiting {
		if e.hasResources() {
			return true
		}
	}
	return false
}

// arm requests an event for the next packet.
func (f *iface) arm() {
	if !f.armed {
		f.armed = true
		f.recvCQ.Arm(false)
	}
}

// disarm consumes the requested event, so that it starts no section.
func (f *iface) disarm() {
	f.armed = false
	for {
		if _, ok := f.channel.TryEvent(); !ok {
			return
		}
	}
}

// EventFD: see uct.Iface.
func (f *iface) EventFD() int { return f.wake.FD() }

// Arm requests a wake-up on any event.
//
// It requests the event first and polls then, until the CQ is empty. So a packet that
// arrives before the request is received here, and a later one generates the event.
func (f *iface) Arm(uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if !f.enter() {
		return ucs.Busy
	}
	defer f.leave()
	f.endSleep()
	for !f.hasReports() {
		f.disarm()
		f.arm()
		n := f.recvCQ.Poll(f.recvWCs[:])
		if n <= 0 {
			break
		}
		f.processRecvs(f.recvWCs[:n]) // the requested event was generated too, and would cause a spurious wake-up
		f.repost()
	}
	f.flushACKs()
	f.pollSendCQ()
	f.flushPosts()
	f.batching = false
	if f.hasReports() {
		f.restNeeded = true
		return ucs.Busy
	}
	f.sleeping, f.restNeeded = true, true
	f.d.NotifyIdle()
	return ucs.OK
}

// endSleep ends the armed state and clears the wake-up.
func (f *iface) endSleep() {
	f.sleeping = false
	f.wake.Lower()
}
