package rc

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// hasRoom reports whether what was refused last would be taken.
func (e *ep) hasRoom() bool {
	return e.ready() && e.out.room() && (!e.needsBuf || e.f.tx.Free() > 0)
}

// PendingAdd queues t until there is room for what was refused last.
func (e *ep) PendingAdd(t uct.Token) uct.Status {
	e.f.enterWait()
	defer e.f.leave()
	if e.status != ucs.OK {
		return e.status
	}
	if e.pend.Len() == 0 {
		if e.hasRoom() {
			e.gate()
			return ucs.Busy
		}
		if e.out == nil {
			e.want()
		}
		if e.status != ucs.OK {
			return e.status
		}
	}
	e.pend.Add(t)
	e.gate()
	if !e.waits {
		e.waits = true
		e.f.waiting = append(e.f.waiting, e)
	}
	e.f.stats.Inc(statPending)
	return ucs.OK
}

// PendingPurge empties the queue.
func (e *ep) PendingPurge(f func(uct.Token)) {
	e.f.enterWait()
	e.pend.Purge(e.gate, func(t uct.Token) {
		e.f.leave()
		f(t)
		e.f.enterWait()
	})
	e.f.leave()
}

// offerAll hands waiting tokens to the handler where there is room, another
// endpoint's first each time, and gives how many operations moved.
//
//go:noinline
func (f *iface) offerAll() (moved int) {
	n := len(f.waiting)
	f.offerAt++
	for i := range n {
		moved += f.waiting[(f.offerAt+i)%n].offer()
	}
	kept := f.waiting[:0]
	for _, e := range f.waiting {
		if e.waits = e.pend.Len() > 0; e.waits {
			kept = append(kept, e)
		}
	}
	clear(f.waiting[len(kept):])
	f.waiting = kept
	return moved
}

// offer lets the handler retry what waits.
func (e *ep) offer() int {
	if e.status != ucs.OK || e.pend.Len() == 0 || !e.hasRoom() {
		return 0
	}
	e.q = e.out
	k := e.pend.Offer(e.f.handler)
	e.gate()
	return k
}
