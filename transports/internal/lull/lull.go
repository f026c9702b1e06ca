// Package lull suspends idle connections, least recently used first. It is the common part of
// uct.ConnectionCache in transports/shm and transports/rc.
//
// The transport decides which connections can be suspended, and suspends them.
package lull

import (
	"cmp"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	// Every is the interval at which an interface above its limit of live connections searches
	// for idle ones.
	Every = 10 * time.Millisecond
	// idleAfter is the time without traffic after which a connection is idle.
	idleAfter = 20 * time.Millisecond
	// most is the maximum number of suspensions proposed at a time.
	most = 64
)

// Conn is a connection with an embedded Activity.
type Conn interface {
	// Nap proposes to the peer to suspend the connection. The peer may decline.
	Nap()
	last() *Activity
}

// Activity records when a connection was used last, as far as the calls of Idle show.
type Activity struct {
	Awaited uct.WaitKind // what the layer above waits for, by the last Learn
	moved   uint64    // count of messages sent and received
	at      ucs.Time  // when that count was seen first; 0: never
}

func (a *Activity) last() *Activity { return a }

// Idle takes the count of messages sent and received so far. It reports whether the count has
// not changed for idleAfter, and the layer above waits for no reply.
func (a *Activity) Idle(now ucs.Time, moved uint64) bool {
	if moved != a.moved || a.at == 0 {
		a.moved, a.at = moved, now
	}
	return now.Sub(a.at) >= idleAfter && a.Awaited < uct.WaitForReply
}

// Learn asks h for the connections on which it waits for at least least, and sets Awaited
// there. The caller has reset Awaited of all connections. of maps the arguments of
// uct.WaitReporter to a connection, or returns nil.
func Learn(h uct.Handler, least uct.WaitKind, of func(ep uct.Endpoint, source uint32) *Activity) {
	r, ok := h.(uct.WaitReporter)
	if !ok {
		return
	}
	r.ReportWaits(least, func(ep uct.Endpoint, source uint32, w uct.WaitKind) {
		if a := of(ep, source); a != nil {
			a.Awaited = max(a.Awaited, w)
		}
	})
}

// List is a list of connections that can be suspended.
type List []Conn

// Since appends the time of last use of each connection to since.
func (l List) Since(since []ucs.Time) []ucs.Time {
	for _, c := range l {
		since = append(since, c.last().at)
	}
	return since
}

// Sleep proposes suspension for at most n connections that have been idle since t or longer,
// the least recently used first. It returns their number.
func (l List) Sleep(now, t ucs.Time, n int) int {
	slices.SortFunc(l, func(a, b Conn) int { return cmp.Compare(a.last().at, b.last().at) })
	l = l[:min(len(l), n, most)]
	for i, c := range l {
		if t.Before(c.last().at) {
			return i
		}
		c.Nap()
		c.last().at = now // do not propose it again at once if the peer declines
	}
	return len(l)
}
