package rc

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Cookies identify the completion queues in events.
const (
	cookieRecv = iota
	cookieSend
	cookieConnMsgs
)

// EventFD returns a descriptor that is readable when an armed completion queue has an event.
func (f *iface) EventFD() int { return f.wake.FD() }

// disarm consumes the events of the last Arm.
func (f *iface) disarm() {
	f.armed = false
	f.wake.Lower()
	f.drainEvents()
}

// drainEvents consumes all events of the completion channel. others reports whether one of them is
// for the worker: it is not from the queue of connection messages.
func (f *iface) drainEvents() (workerEvent bool) {
	f.ud.armed = false
	for {
		c, ok := f.channel.TryEvent()
		if !ok {
			return workerEvent
		}
		workerEvent = workerEvent || c != cookieConnMsgs
	}
}

// Arm arms the descriptor for the next completion. Completions before that cause no event, so
// Arm polls the queues after arming them and returns Busy if they had any.
func (f *iface) Arm(k uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if !f.enter() {
		return ucs.Busy
	}
	defer f.leave()
	if f.serviceNeeded || f.drainedAt < len(f.drained) || len(f.drainedSends) > 0 {
		return ucs.Busy
	}
	for _, e := range f.waiting {
		if e.hasRoom() {
			return ucs.Busy
		}
	}
	f.disarm()
	if n, _ := f.ud.poll(udRecvs); n > 0 {
		return ucs.Busy
	}
	if st := f.recvCQ.Arm(false); st != ucs.OK {
		return st
	}
	f.armed = true
	if k&uct.EventSend != 0 {
		if st := f.sendCQ.Arm(false); st != ucs.OK {
			return st
		}
		if f.drainedSends == nil {
			f.drainedSends = make([]verbs.WC, 0, sendPollBatch)
		}
		f.drainedSends = f.drainedSends[:max(0, f.sendCQ.Poll(f.drainedSends[:sendPollBatch]))]
	}
	f.drainRecvCQ()
	if len(f.drained) > 0 || len(f.drainedSends) > 0 {
		return ucs.Busy
	}
	f.d.NotifyIdle()
	if f.timers.Len() > 0 {
		return ucs.InProgress
	}
	return ucs.OK
}
