package ud

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// EventFD: see uct.Iface.
func (f *iface) EventFD() int { return f.wake.FD() }

// Arm requests a wake-up on any event.
//
// It requests the event first and polls then, until the CQ is empty. So a packet that
// arrives before the request is received here, and a later one generates the event.
func (f *iface) Arm(uct.EventKind) uct.Status {
	if f.state == ifaceClosed {
		return ucs.Closed
	}
	if !f.Enter() {
		return ucs.Busy
	}
	defer f.Leave()
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
	f.state, f.restNeeded = ifaceSleeping, true
	f.d.NotifyIdle()
	return ucs.OK
}

// endSleep ends the sleep that Arm began, and clears the wake-up.
func (f *iface) endSleep() {
	f.state = ifaceAwake
	f.wake.Lower()
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
