package rc

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// uses returns the number of messages sent and received on a connection, and whether it can be
// suspended. It requests a completion for unsignaled operations in flight, so that this changes.
func (f *iface) uses(e *ep) (n uint64, ok bool) {
	if e.txQueue == nil {
		return uint64(e.received), false
	}
	e.requestCompletion()
	return uint64(e.txQueue.tail + e.received), e.M.Quiescent() && !e.hasPending()
}

// Suspend implements conn.Connection.
func (e *ep) Suspend() {
	e.f.stats.Inc(statSuspends)
	e.step(machine.Event{Kind: machine.EventSuspend})
}

// activeConns returns the number of connections whose QP is in use by both sides.
func (f *iface) activeConns() int { return f.numQPs - len(f.draining) - f.halfOpen.Len() }

// Active implements uct.ConnectionCache.
func (f *iface) Active() int {
	f.enterWait()
	defer f.leave()
	return f.activeConns()
}

// Candidates implements uct.ConnectionCache.
func (f *iface) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time {
	f.enterWait()
	defer f.leave()
	return f.Table.Candidates(now, since)
}

// Evict implements uct.ConnectionCache.
func (f *iface) Evict(now, t ucs.Time, most int) int {
	f.enterWait()
	defer f.leave()
	return f.Table.Evict(now, t, most)
}

// requestCompletion requests a completion for unsignaled operations in flight.
func (e *ep) requestCompletion() {
	if q := e.txQueue; q != nil && q.head != q.tail && q.signaled == 0 && q.room() {
		q.postZeroWrite(0)
	}
}
