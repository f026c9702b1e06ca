package rc

import (
	"github.com/goucx/goucx/transports/internal/lull"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// lull suspends idle connections while more than maxPairs have QPs. Their peers may decline.
func (f *iface) lull(now ucs.Time) {
	most := f.live() - f.maxPairs
	if most <= 0 || now.Sub(f.lulled) < lull.Every {
		return
	}
	f.lulled = now
	f.idle(now).Sleep(now, now, most)
}

// idle returns the connections that can be suspended.
func (f *iface) idle(now ucs.Time) (idle lull.List) {
	f.learnWaits(uct.WaitForReply)
	for _, e := range f.eps {
		if e == nil || e.dead != nil || e.out == nil {
			continue
		}
		e.settleQueue()
		if e.Idle(now, uint64(e.out.tail+e.got)) && e.m.Quiescent() && !e.busy() {
			idle = append(idle, e)
		}
	}
	return idle
}

// learnWaits updates Awaited of all connections: whether the layer above waits for at least
// least on them.
func (f *iface) learnWaits(least uct.WaitKind) {
	for _, e := range f.eps {
		if e != nil {
			e.Awaited = uct.WaitNone
		}
	}
	lull.Learn(f.handler, least, func(u uct.Endpoint, source uint32) *lull.Activity {
		e, _ := u.(*ep)
		if i := int(source) - 1; e == nil && i >= 0 && i < len(f.eps) {
			e = f.eps[i]
		}
		if e == nil {
			return nil
		}
		return &e.Activity
	})
}

// Nap implements lull.Conn.
func (e *ep) Nap() {
	e.f.stats.Inc(statNaps)
	e.step(machine.Event{Kind: machine.EventSuspend})
}

// Active implements uct.ConnectionCache.
func (f *iface) Active() int {
	f.enterWait()
	defer f.leave()
	return f.live()
}

// live returns the number of connections whose QP is in use by both sides.
func (f *iface) live() int { return f.pairs - len(f.dying) - f.halfOpen.Len() }

// Candidates implements uct.ConnectionCache.
func (f *iface) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time {
	f.enterWait()
	defer f.leave()
	return f.idle(now).Since(since)
}

// Evict implements uct.ConnectionCache.
func (f *iface) Evict(now, t ucs.Time, most int) int {
	f.enterWait()
	defer f.leave()
	return f.idle(now).Sleep(now, t, most)
}

// settleQueue requests a completion for unsignaled operations in flight.
func (e *ep) settleQueue() {
	if q := e.out; q != nil && q.head != q.tail && q.signals == 0 && q.room() {
		q.nothing(0)
	}
}
