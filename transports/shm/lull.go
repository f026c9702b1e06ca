package shm

import (
	"github.com/goucx/goucx/transports/internal/lull"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// lull evicts idle connections if more than maxMapped have a ring pair. It sends SUSPEND
// to their peers, which may reply SUSPEND_NAK.
func (f *iface) lull(now ucs.Time) {
	if f.mapped <= f.maxMapped || now.Sub(f.lulled) < lull.Every {
		return
	}
	f.lulled = now
	f.idle(now).Sleep(now, now, f.mapped-f.maxMapped)
}

// idle lists the connections that can be evicted.
func (f *iface) idle(now ucs.Time) (idle lull.List) {
	f.learnWaits()
	for _, e := range f.slots {
		if e == nil || e.dead != nil || e.hungUp {
			continue
		}
		if e.Idle(now, e.tx.Head()+e.rx.Taken()) && e.m.Quiescent() && !e.busy() {
			idle = append(idle, e)
		}
	}
	return idle
}

// learnWaits asks UCP for the connections on which it awaits a reply. Weaker reasons to
// wait do not count: the socket reports the peer's end also on a suspended connection.
func (f *iface) learnWaits() {
	for _, e := range f.slots {
		if e != nil {
			e.Awaited = uct.WaitNone
		}
	}
	lull.Learn(f.handler, uct.WaitForReply, func(u uct.Endpoint, source uint32) *lull.Activity {
		e, _ := u.(*ep)
		if i := int(source) - 1; e == nil && i >= 0 && i < len(f.slots) {
			e = f.slots[i]
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
	e.step(machine.Event{Kind: machine.EventSuspend})
}

// Active: see uct.ConnectionCache.
func (f *iface) Active() int { return f.mapped }

// Candidates: see uct.ConnectionCache.
func (f *iface) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time { return f.idle(now).Since(since) }

// Sleep: see uct.ConnectionCache.
func (f *iface) Evict(now, t ucs.Time, most int) int { return f.idle(now).Sleep(now, t, most) }
