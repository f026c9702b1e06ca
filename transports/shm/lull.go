package shm

import (
	"cmp"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

const (
	// lullEvery is how often a worker with more connections than may have memory
	// looks for idle ones, and idleAfter how long they have been idle then.
	lullEvery = 10 * time.Millisecond
	idleAfter = 20 * time.Millisecond
	// lullMost is how many it proposes to put to sleep at a time.
	lullMost = 64
)

// lull puts idle connections to sleep, least recently used first, where more have
// memory than should. Their peers may decline.
func (f *iface) lull(now ucs.Time) {
	if f.mapped <= f.maxMapped || now.Sub(f.lulled) < lullEvery {
		return
	}
	f.lulled = now
	var idle []*ep
	for _, e := range f.slots {
		if e == nil || e.dead != nil || e.hungUp {
			continue
		}
		if a := e.tx.Head() + e.rx.Taken(); a != e.activity || e.activeAt == 0 {
			e.activity, e.activeAt = a, now
		}
		if e.m.Settled() && now.Sub(e.activeAt) >= idleAfter && !e.busy() {
			idle = append(idle, e)
		}
	}
	slices.SortFunc(idle, func(a, b *ep) int { return cmp.Compare(a.activeAt, b.activeAt) })
	for _, e := range idle[:min(len(idle), f.mapped-f.maxMapped, lullMost)] {
		f.stats.Inc(statNaps)
		e.step(machine.Event{Kind: machine.Sleep})
		e.activeAt = now // whatever it answers: not at once again
	}
}
