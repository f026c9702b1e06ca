package shm

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// PendingAdd queues t until the ring has room for what was refused last.
func (e *ep) PendingAdd(t uct.Token) uct.Status {
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		if s := e.refresh(); s != ucs.OK {
			return s
		}
		if e.tx.Fits(e.need) {
			return ucs.Busy
		}
		e.block(ucs.NoResource)
		e.wait()
	}
	e.f.stats.Inc(statPending)
	e.pend.Add(t)
	return ucs.OK
}

// wait has Progress offer what waits on e. A sleeper armed before, when nobody was
// to tell it of room here: it has to arm anew.
func (e *ep) wait() {
	f := e.f
	if !e.waits {
		e.waits = true
		f.waiting, f.extra = append(f.waiting, e), true
	}
	if f.armed {
		f.look()
	}
}

// PendingPurge empties the queue.
func (e *ep) PendingPurge(f func(uct.Token)) {
	e.pend.Purge(func() {
		if e.status == ucs.OK {
			e.unblock()
		}
	}, f)
}

// offerAll hands waiting tokens to the handler where room came back, and gives how
// many operations moved: a worker that only sends is not idle.
//
//go:noinline
func (f *iface) offerAll() (moved int) {
	for i := 0; i < len(f.waiting); {
		e := f.waiting[i]
		moved += e.offer()
		if e.pend.Len() > 0 {
			i++
			continue
		}
		e.waits = false
		last := len(f.waiting) - 1
		f.waiting[i] = f.waiting[last]
		f.waiting[last] = nil
		f.waiting = f.waiting[:last]
	}
	return moved
}

// offer opens the ring while the handler retries what waits. It gives how many
// tokens were consumed, and one more where a part of another went out.
func (e *ep) offer() int {
	if e.status != ucs.OK || e.pend.Len() == 0 {
		return 0
	}
	e.unblock()
	if e.refresh() != ucs.OK {
		return 0
	}
	if !e.tx.Fits(e.need) {
		e.block(ucs.NoResource)
		return 0
	}
	head := e.tx.Head()
	k := e.pend.Offer(e.f.handler)
	if e.pend.Len() > 0 && e.status == ucs.OK {
		e.block(ucs.NoResource)
	}
	if k == 0 && e.tx.Head() != head {
		return 1
	}
	return k
}
