// Package lull puts idle connections to sleep, least recently used first: what the
// transports whose connections can sleep share of uct.Idler.
//
// Used by transports/shm and transports/rc. Which connections could sleep, and how,
// is the transport's own.
package lull

import (
	"cmp"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	// Every is how often an interface with more live connections than it should have
	// looks for idle ones.
	Every = 10 * time.Millisecond
	// idleAfter is how long a connection that could sleep has been idle.
	idleAfter = 20 * time.Millisecond
	// most is how many are proposed for sleep at a time.
	most = 64
)

// Conn is a connection, with an Activity embedded in it.
type Conn interface {
	// Nap proposes to the peer that the connection sleeps. It may decline.
	Nap()
	last() *Activity
}

// Activity is when a connection was used last, as far as the looks at it tell.
type Activity struct {
	Awaited uct.Waits // by the layer above, when Learn asked it last
	moved   uint64    // what was sent and received at
	at      ucs.Time  // this time, or before it
}

func (a *Activity) last() *Activity { return a }

// Idle notes how much was sent and received so far, and reports whether it has been
// as much for long enough, and no answer is awaited.
func (a *Activity) Idle(now ucs.Time, moved uint64) bool {
	if moved != a.moved || a.at == 0 {
		a.moved, a.at = moved, now
	}
	return now.Sub(a.at) >= idleAfter && a.Awaited < uct.WaitsForAnswer
}

// Learn asks h for which connections it waits for at least least. The caller has
// cleared Awaited of all; of finds it by what uct.WaitReporter names, or returns nil.
func Learn(h uct.Handler, least uct.Waits, of func(ep uct.Endpoint, source uint32) *Activity) {
	r, ok := h.(uct.WaitReporter)
	if !ok {
		return
	}
	r.ReportWaits(least, func(ep uct.Endpoint, source uint32, w uct.Waits) {
		if a := of(ep, source); a != nil {
			a.Awaited = max(a.Awaited, w)
		}
	})
}

// List is connections that could sleep.
type List []Conn

// Since appends to since when each of them was used last.
func (l List) Since(since []ucs.Time) []ucs.Time {
	for _, c := range l {
		since = append(since, c.last().at)
	}
	return since
}

// Sleep proposes at most n of them, idle since t or longer, for sleep, the least
// recently used first, and gives their number.
func (l List) Sleep(now, t ucs.Time, n int) int {
	slices.SortFunc(l, func(a, b Conn) int { return cmp.Compare(a.last().at, b.last().at) })
	l = l[:min(len(l), n, most)]
	for i, c := range l {
		if t.Before(c.last().at) {
			return i
		}
		c.Nap()
		c.last().at = now // whatever the peer answers: not at once again
	}
	return len(l)
}
