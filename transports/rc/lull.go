package rc

import (
	"cmp"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

const (
	// lullEvery is how often an interface with more queue pairs than it should have
	// looks for idle connections, and idleAfter how long they have been idle then.
	lullEvery = 10 * time.Millisecond
	idleAfter = 20 * time.Millisecond
	// lullMost is how many it proposes to put to sleep at a time.
	lullMost = 64
)

// lull puts idle connections to sleep, least recently used first, where more have
// queue pairs than should. Their peers may decline.
func (f *iface) lull(now ucs.Time) {
	most := f.pairs - len(f.dying) - f.maxPairs
	if most <= 0 || now.Sub(f.lulled) < lullEvery {
		return
	}
	f.lulled = now
	f.sleep(now, f.idle(now), most)
}

// idle lists the connections that could sleep, least recently used first.
func (f *iface) idle(now ucs.Time) (idle []*ep) {
	for _, e := range f.eps {
		if e == nil || e.dead != nil || e.out == nil {
			continue
		}
		e.settleQueue()
		if a := e.out.tail + e.got; a != e.activity || e.activeAt == 0 {
			e.activity, e.activeAt = a, now
		}
		if e.m.Settled() && now.Sub(e.activeAt) >= idleAfter && !e.busy() {
			idle = append(idle, e)
		}
	}
	slices.SortFunc(idle, func(a, b *ep) int { return cmp.Compare(a.activeAt, b.activeAt) })
	return idle
}

// sleep proposes the first most of the idle connections for sleep.
func (f *iface) sleep(now ucs.Time, idle []*ep, most int) int {
	idle = idle[:min(len(idle), most, lullMost)]
	for _, e := range idle {
		f.stats.Inc(statNaps)
		e.step(machine.Event{Kind: machine.Sleep})
		e.activeAt = now // whatever it answers: not at once again
	}
	return len(idle)
}

// Live: see uct.Idler.
func (f *iface) Live() int {
	f.enterWait()
	defer f.leave()
	return f.pairs - len(f.dying)
}

// Idle: see uct.Idler.
func (f *iface) Idle(now ucs.Time, since []ucs.Time) []ucs.Time {
	f.enterWait()
	defer f.leave()
	for _, e := range f.idle(now) {
		since = append(since, e.activeAt)
	}
	return since
}

// Sleep: see uct.Idler.
func (f *iface) Sleep(now, t ucs.Time, most int) int {
	f.enterWait()
	defer f.leave()
	idle := f.idle(now)
	n := slices.IndexFunc(idle, func(e *ep) bool { return t.Before(e.activeAt) })
	if n < 0 {
		n = len(idle)
	}
	return f.sleep(now, idle[:n], most)
}

// settleQueue asks for a completion of what was posted without one.
func (e *ep) settleQueue() {
	if q := e.out; q != nil && q.head != q.tail && q.signals == 0 && q.room() {
		q.nothing(0)
	}
}
