package ucp

import (
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// idleEviction evicts idle connections. It keeps the number of active connections of a worker,
// over all its ifaces, at or below a bound. Above the bound it suspends idle connections,
// least recently used first. The transport resumes a suspended connection on use.
type idleEviction struct {
	maxActive int // bound on active connections; math.MaxInt: no bound, look does nothing
	caches    []uct.ConnectionCache
	due       ucs.Time
	since     []ucs.Time
}

// evictInterval is the interval between two searches for idle connections.
const evictInterval = 10 * time.Millisecond

func (w *Worker) initEviction() {
	w.t.eviction.maxActive = rowMaxLive.Get(w.t.ctx.settings)
	for _, wi := range w.t.ifaces {
		if f, ok := wi.iface.(uct.ConnectionCache); ok {
			w.t.eviction.caches = append(w.t.eviction.caches, f)
		}
	}
}

// evictIdle suspends idle connections if there are more active ones than the bound. Below the
// bound it looks at the connections too, so that the ifaces know which were used last.
func (l *idleEviction) evictIdle(now ucs.Time) {
	if l.maxActive == math.MaxInt || now.Before(l.due) {
		return
	}
	l.due = now.Add(evictInterval)
	since := l.since[:0]
	for _, f := range l.caches {
		since = f.Candidates(now, since)
	}
	l.since = since
	excess := l.excess()
	if excess <= 0 || len(since) == 0 {
		return
	}
	slices.Sort(since)
	t := since[min(excess, len(since))-1]
	for _, f := range l.caches {
		excess -= f.Evict(now, t, excess)
	}
}

// excess returns the number of active connections above the bound. It is negative below it.
func (l *idleEviction) excess() int {
	n := -l.maxActive
	for _, f := range l.caches {
		n += f.Active()
	}
	return n
}
