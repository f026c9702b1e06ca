package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// PendingAdd queues t until there is room for what was refused last. Room that the
// async goroutine makes counts when Progress has seen it.
func (e *endpoint) PendingAdd(t uct.Token) uct.Status {
	f := e.f
	f.enterWait()
	defer f.leave()
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		if e.shortAt != f.passes+1 && e.fits() {
			return ucs.Busy
		}
		e.gate = ucs.NoResource
		if !e.waits {
			e.waits = true
			f.waiting = append(f.waiting, e)
		}
	}
	f.more = true
	f.stats.Inc(statPending)
	e.pend.Add(t)
	return ucs.OK
}

// PendingPurge empties the queue.
func (e *endpoint) PendingPurge(fn func(uct.Token)) {
	e.f.enterWait()
	e.pend.Purge(func() { e.gate = e.status }, func(t uct.Token) {
		e.f.leave()
		fn(t)
		e.f.enterWait()
	})
	e.f.leave()
}

// fits reports whether what was refused may be sent now.
func (e *endpoint) fits() bool {
	return e.s.Room() && e.f.credit() && e.f.tx.free(max(e.want, arq.HeadLen))
}

// offerAll hands waiting tokens to the handler where room came back, and gives how
// many operations moved.
//
//go:noinline
func (f *iface) offerAll() (moved int) {
	for i := 0; i < len(f.waiting); {
		e := f.waiting[i]
		moved += e.offer()
		if e.pend.Len() > 0 && e.status == ucs.OK {
			i++
			continue
		}
		e.waits = false
		last := len(f.waiting) - 1
		f.waiting[i], f.waiting[last] = f.waiting[last], nil
		f.waiting = f.waiting[:last]
	}
	return moved
}

func (e *endpoint) offer() int {
	if e.status != ucs.OK || e.pend.Len() == 0 || !e.fits() {
		return 0
	}
	e.gate = ucs.OK
	k := e.pend.Offer(e.f.handler)
	if e.pend.Len() > 0 && e.status == ucs.OK {
		e.gate = ucs.NoResource
	}
	return k
}
