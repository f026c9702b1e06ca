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
	var idle []*ep
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
	for _, e := range idle[:min(len(idle), most, lullMost)] {
		f.stats.Inc(statNaps)
		e.step(machine.Event{Kind: machine.Sleep})
		e.activeAt = now // whatever it answers: not at once again
	}
}

// settleQueue asks for a completion of what was posted without one.
func (e *ep) settleQueue() {
	if q := e.out; q != nil && q.head != q.tail && q.signals == 0 && q.room() {
		q.nothing(0)
	}
}
