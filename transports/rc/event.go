package rc

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// Cookies of the completion queues.
const (
	cookieRecv = iota
	cookieSend
	cookieNotes
)

// EventFD becomes readable when an armed completion queue gets something.
func (f *iface) EventFD() int { return f.wake.FD() }

// disarm takes the events of the last Arm.
func (f *iface) disarm() {
	f.armed = false
	f.wake.Lower()
	f.drain()
}

// drain takes the events that are there, and reports whether one of them is the
// worker's: of another queue than that of connection messages.
func (f *iface) drain() (others bool) {
	f.ud.armed = false
	for {
		c, ok := f.channel.TryEvent()
		if !ok {
			return others
		}
		others = others || c != cookieNotes
	}
}

// Arm has the descriptor tell of what comes next. It looks at the queues after it
// has armed them, since what came before gives no sign.
func (f *iface) Arm(k uct.EventKind) uct.Status {
	if f.closed {
		return ucs.Closed
	}
	if !f.enter() {
		return ucs.Busy
	}
	defer f.leave()
	if f.attention || f.stashAt < len(f.stash) || len(f.sendStash) > 0 {
		return ucs.Busy
	}
	for _, e := range f.waiting {
		if e.hasRoom() {
			return ucs.Busy
		}
	}
	f.disarm()
	if n, _ := f.ud.hear(udRecvs); n > 0 {
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
		if f.sendStash == nil {
			f.sendStash = make([]verbs.WC, 0, endBatch)
		}
		f.sendStash = f.sendStash[:max(0, f.sendCQ.Poll(f.sendStash[:endBatch]))]
	}
	f.stashAll()
	if len(f.stash) > 0 || len(f.sendStash) > 0 {
		return ucs.Busy
	}
	f.d.Rest()
	if len(f.timed) > 0 {
		return ucs.InProgress
	}
	return ucs.OK
}
