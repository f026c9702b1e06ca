package rc

import (
	"github.com/goucx/goucx/transports/internal/lull"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// lull puts idle connections to sleep where more have queue pairs than should. Their
// peers may decline.
func (f *iface) lull(now ucs.Time) {
	most := f.live() - f.maxPairs
	if most <= 0 || now.Sub(f.lulled) < lull.Every {
		return
	}
	f.lulled = now
	f.idle(now).Sleep(now, now, most)
}

// idle lists the connections that could sleep.
func (f *iface) idle(now ucs.Time) (idle lull.List) {
	f.learnWaits(uct.WaitsForAnswer)
	for _, e := range f.eps {
		if e == nil || e.dead != nil || e.out == nil {
			continue
		}
		e.settleQueue()
		if e.Idle(now, uint64(e.out.tail+e.got)) && e.m.Settled() && !e.busy() {
			idle = append(idle, e)
		}
	}
	return idle
}

// learnWaits asks the layer above for which connections it waits for at least least.
func (f *iface) learnWaits(least uct.Waits) {
	for _, e := range f.eps {
		if e != nil {
			e.Awaited = uct.WaitsNot
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

// Nap: see lull.Conn.
func (e *ep) Nap() {
	e.f.stats.Inc(statNaps)
	e.step(machine.Event{Kind: machine.Sleep})
}

// Live: see uct.Idler.
func (f *iface) Live() int {
	f.enterWait()
	defer f.leave()
	return f.live()
}

// live counts the connections with a queue pair that both sides use.
func (f *iface) live() int { return f.pairs - len(f.dying) - f.halfOpen.Len() }

// Idle: see uct.Idler.
func (f *iface) Idle(now ucs.Time, since []ucs.Time) []ucs.Time {
	f.enterWait()
	defer f.leave()
	return f.idle(now).Since(since)
}

// Sleep: see uct.Idler.
func (f *iface) Sleep(now, t ucs.Time, most int) int {
	f.enterWait()
	defer f.leave()
	return f.idle(now).Sleep(now, t, most)
}

// settleQueue asks for a completion of what was posted without one.
func (e *ep) settleQueue() {
	if q := e.out; q != nil && q.head != q.tail && q.signals == 0 && q.room() {
		q.nothing(0)
	}
}
