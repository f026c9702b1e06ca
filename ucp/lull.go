package ucp

import (
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// lulls evicts idle connections. It keeps the number of active connections of a worker,
// over all its ifaces, at or below a bound. Above the bound it suspends idle connections,
// least recently used first. The transport resumes a suspended connection on use.
type lulls struct {
	most   int // bound on active connections; math.MaxInt: no bound, look does nothing
	ifaces []uct.ConnectionCache
	due    ucs.Time
	since  []ucs.Time
}

// lullEvery is the interval between two searches for idle connections.
const lullEvery = 10 * time.Millisecond

func (w *Worker) initLulls() {
	w.lulls.most = rowMaxLive.Get(w.ctx.settings)
	for _, p := range w.ports {
		if f, ok := p.iface.(uct.ConnectionCache); ok {
			w.lulls.ifaces = append(w.lulls.ifaces, f)
		}
	}
}

// look suspends idle connections if there are more active ones than the bound. Below the
// bound it looks at the connections too, so that the ifaces know which were used last.
func (l *lulls) look(now ucs.Time) {
	if l.most == math.MaxInt || now.Before(l.due) {
		return
	}
	l.due = now.Add(lullEvery)
	since := l.since[:0]
	for _, f := range l.ifaces {
		since = f.Candidates(now, since)
	}
	l.since = since
	excess := l.excess()
	if excess <= 0 || len(since) == 0 {
		return
	}
	slices.Sort(since)
	t := since[min(excess, len(since))-1]
	for _, f := range l.ifaces {
		excess -= f.Evict(now, t, excess)
	}
}

// excess returns the number of active connections above the bound. It is negative below it.
func (l *lulls) excess() int {
	n := -l.most
	for _, f := range l.ifaces {
		n += f.Active()
	}
	return n
}
