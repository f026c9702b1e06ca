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
	f.sleep(now, f.idle(now), f.mapped-f.maxMapped)
}

// idle lists the connections that could sleep, least recently used first.
func (f *iface) idle(now ucs.Time) (idle []*ep) {
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
func (f *iface) Live() int { return f.mapped }

// Idle: see uct.Idler.
func (f *iface) Idle(now ucs.Time, since []ucs.Time) []ucs.Time {
	for _, e := range f.idle(now) {
		since = append(since, e.activeAt)
	}
	return since
}

// Sleep: see uct.Idler.
func (f *iface) Sleep(now, t ucs.Time, most int) int {
	idle := f.idle(now)
	n := slices.IndexFunc(idle, func(e *ep) bool { return t.Before(e.activeAt) })
	if n < 0 {
		n = len(idle)
	}
	return f.sleep(now, idle[:n], most)
}
