package shm

import (
	"github.com/goucx/goucx/transports/internal/evict"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// evictIdle evicts idle connections if more than maxMappedConns have a ring pair. It sends SUSPEND
// to their peers, which may reply SUSPEND_NAK.
func (f *iface) evictIdle(now ucs.Time) {
	if f.mappedConns <= f.maxMappedConns || now.Sub(f.evictedAt) < evict.Interval {
		return
	}
	f.evictedAt = now
	f.idleConns(now).Evict(now, now, f.mappedConns-f.maxMappedConns)
}

// idleConns lists the connections that can be evicted.
func (f *iface) idleConns(now ucs.Time) (conns evict.List) {
	f.queryWaits()
	for _, e := range f.slots {
		if e == nil || e.failure != nil || e.peerGone {
			continue
		}
		if e.Idle(now, e.tx.Head()+e.rx.Consumed()) && e.m.Quiescent() && !e.hasPending() {
			conns = append(conns, e)
		}
	}
	return conns
}

// queryWaits asks UCP for the connections on which it awaits a reply. Weaker reasons to
// wait do not count: the socket reports the peer's end also on a suspended connection.
func (f *iface) queryWaits() {
	for _, e := range f.slots {
		if e != nil {
			e.Awaited = uct.WaitNone
		}
	}
	evict.QueryWaits(f.handler, uct.WaitForReply, func(u uct.Endpoint, source uint32) *evict.Activity {
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

// Suspend: see evict.Conn.
func (e *ep) Suspend() {
	e.f.stats.Inc(statSuspends)
	e.step(machine.Event{Kind: machine.EventSuspend})
}

// Active: see uct.ConnectionCache.
func (f *iface) Active() int { return f.mappedConns }

// Candidates: see uct.ConnectionCache.
func (f *iface) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time {
	return f.idleConns(now).IdleSince(since)
}

// Evict: see uct.ConnectionCache.
func (f *iface) Evict(now, t ucs.Time, most int) int { return f.idleConns(now).Evict(now, t, most) }
