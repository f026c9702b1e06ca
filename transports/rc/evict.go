package rc

import (
	"github.com/goucx/goucx/transports/internal/evict"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// evictIdle suspends idle connections while more than maxQPs have QPs. Their peers may decline.
func (f *iface) evictIdle(now ucs.Time) {
	excess := f.activeConns() - f.maxQPs
	if excess <= 0 || now.Sub(f.evictedAt) < evict.Interval {
		return
	}
	f.evictedAt = now
	f.idleConns(now).Evict(now, now, excess)
}

// idleConns returns the connections that can be suspended.
func (f *iface) idleConns(now ucs.Time) (idle evict.List) {
	f.queryWaits(uct.WaitForReply)
	for _, e := range f.eps {
		if e == nil || e.failure != nil || e.txQueue == nil {
			continue
		}
		e.requestCompletion()
		if e.Idle(now, uint64(e.txQueue.tail+e.received)) && e.m.Quiescent() && !e.hasPending() {
			idle = append(idle, e)
		}
	}
	return idle
}

// queryWaits updates Awaited of all connections: whether the layer above waits for at least
// least on them.
func (f *iface) queryWaits(least uct.WaitKind) {
	for _, e := range f.eps {
		if e != nil {
			e.Awaited = uct.WaitNone
		}
	}
	evict.QueryWaits(f.handler, least, func(u uct.Endpoint, source uint32) *evict.Activity {
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

// Suspend implements evict.Conn.
func (e *ep) Suspend() {
	e.f.stats.Inc(statSuspends)
	e.step(machine.Event{Kind: machine.EventSuspend})
}

// Active implements uct.ConnectionCache.
func (f *iface) Active() int {
	f.enterWait()
	defer f.leave()
	return f.activeConns()
}

// activeConns returns the number of connections whose QP is in use by both sides.
func (f *iface) activeConns() int { return f.numQPs - len(f.draining) - f.halfOpen.Len() }

// Candidates implements uct.ConnectionCache.
func (f *iface) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time {
	f.enterWait()
	defer f.leave()
	return f.idleConns(now).IdleSince(since)
}

// Evict implements uct.ConnectionCache.
func (f *iface) Evict(now, t ucs.Time, most int) int {
	f.enterWait()
	defer f.leave()
	return f.idleConns(now).Evict(now, t, most)
}

// requestCompletion requests a completion for unsignaled operations in flight.
func (e *ep) requestCompletion() {
	if q := e.txQueue; q != nil && q.head != q.tail && q.signaled == 0 && q.room() {
		q.postZeroWrite(0)
	}
}
