package shm

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// PendingAdd queues t until the ring has room for the last refused message.
func (e *ep) PendingAdd(t uct.Token) uct.Status {
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		if s := e.refresh(); s != ucs.OK {
			return s
		}
		if e.tx.Fits(e.neededRoom) {
			return ucs.Busy
		}
		e.block(ucs.NoResource)
		f := e.f
		if e.Facts.Add(inWaiting) {
			f.waiting = append(f.waiting, e)
			f.needPass()
		}
		if f.state == armed {
			f.requestService() // this peer was not asked to wake the worker when it frees room
		}
	}
	e.f.stats.Inc(statPending)
	e.pend.Add(t)
	return ucs.OK
}

// PendingPurge removes all pending operations and passes each to f.
func (e *ep) PendingPurge(f func(uct.Token)) {
	e.pend.Purge(func() {
		if e.status == ucs.OK {
			e.unblock()
		}
	}, f)
}

// dispatchPending retries pending operations of all connections whose rings have room again.
// It returns the number of operations that advanced, so that a worker that only sends
// does not look idle.
//
//go:noinline
func (f *iface) dispatchPending() (moved int) {
	for i := 0; i < len(f.waiting); {
		e := f.waiting[i]
		moved += e.dispatchPending()
		if e.pend.Len() > 0 {
			i++
			continue
		}
		e.Drop(inWaiting)
		last := len(f.waiting) - 1
		f.waiting[i] = f.waiting[last]
		f.waiting[last] = nil
		f.waiting = f.waiting[:last]
	}
	return moved
}

// dispatchPending unblocks the ring while the handler retries the pending operations. It returns
// the number of completed tokens, or 1 if the handler sent only a part of the first.
func (e *ep) dispatchPending() int {
	if e.status != ucs.OK || e.pend.Len() == 0 {
		return 0
	}
	e.unblock()
	if e.refresh() != ucs.OK {
		return 0
	}
	if !e.tx.Fits(e.neededRoom) {
		e.block(ucs.NoResource)
		return 0
	}
	head := e.tx.Head()
	k := e.pend.Dispatch(e.f.handler)
	if e.pend.Len() > 0 && e.status == ucs.OK {
		e.block(ucs.NoResource)
	}
	if k == 0 && e.tx.Head() != head {
		return 1
	}
	return k
}
