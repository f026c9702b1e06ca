package ucp

import (
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// lulls keeps the live connections of a worker, over all its ifaces, below a bound:
// of more, idle ones are put to sleep, least recently used first. The transport
// wakes one on use.
type lulls struct {
	most   int // math.MaxInt: no bound, and nothing is looked at
	ifaces []uct.Idler
	due    ucs.Time
	since  []ucs.Time
}

// lullEvery is how often idle connections are looked for.
const lullEvery = 10 * time.Millisecond

func (w *Worker) initLulls() {
	w.lulls.most = rowMaxLive.Get(w.ctx.settings)
	for _, p := range w.ports {
		if f, ok := p.iface.(uct.Idler); ok {
			w.lulls.ifaces = append(w.lulls.ifaces, f)
		}
	}
}

// look puts idle connections to sleep where there are too many live ones. Below
// the bound it looks too, so that it knows which were used last.
func (l *lulls) look(now ucs.Time) {
	if l.most == math.MaxInt || now.Before(l.due) {
		return
	}
	l.due = now.Add(lullEvery)
	since := l.since[:0]
	for _, f := range l.ifaces {
		since = f.Idle(now, since)
	}
	l.since = since
	excess := l.excess()
	if excess <= 0 || len(since) == 0 {
		return
	}
	slices.Sort(since)
	t := since[min(excess, len(since))-1]
	for _, f := range l.ifaces {
		excess -= f.Sleep(now, t, excess)
	}
}

// excess is how many live connections there are above the bound.
func (l *lulls) excess() int {
	n := -l.most
	for _, f := range l.ifaces {
		n += f.Live()
	}
	return n
}
