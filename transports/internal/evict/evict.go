// Package evict suspends idle connections, least recently used first. It is the common part of
// uct.ConnectionCache in transports/shm and transports/rc.
//
// The transport decides which connections can be suspended, and suspends them.
package evict

import (
	"cmp"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	// Interval is the interval at which an interface above its limit of live connections searches
	// for idle ones.
	Interval = 10 * time.Millisecond
	// minIdle is the time without traffic after which a connection is idle.
	minIdle = 20 * time.Millisecond
	// maxPerCall is the maximum number of suspensions proposed at a time.
	maxPerCall = 64
)

// Conn is a connection with an embedded Activity.
type Conn interface {
	// Suspend proposes to the peer to suspend the connection. The peer may decline.
	Suspend()
	activity() *Activity
}

// Activity records when a connection was used last, as far as the calls of Idle show.
type Activity struct {
	Awaited uct.WaitKind // what the layer above waits for, by the last Learn
	count   uint64       // count of messages sent and received
	since   ucs.Time     // when that count was seen first; 0: never
}

func (a *Activity) activity() *Activity { return a }

// Idle takes the count of messages sent and received so far. It reports whether the count has
// not changed for minIdle, and the layer above waits for no reply.
func (a *Activity) Idle(now ucs.Time, count uint64) bool {
	if count != a.count || a.since == 0 {
		a.count, a.since = count, now
	}
	return now.Sub(a.since) >= minIdle && a.Awaited < uct.WaitForReply
}

// QueryWaits asks h for the connections on which it waits for at least least, and sets Awaited
// there. The caller has reset Awaited of all connections. of maps the arguments of
// uct.WaitReporter to a connection, or returns nil.
func QueryWaits(h uct.Handler, least uct.WaitKind, of func(ep uct.Endpoint, source uint32) *Activity) {
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

// IdleSince appends the time of last use of each connection to since.
func (l List) IdleSince(since []ucs.Time) []ucs.Time {
	for _, c := range l {
		since = append(since, c.activity().since)
	}
	return since
}

// Evict proposes suspension for at most n connections that have been idle since t or longer,
// the least recently used first. It returns their number.
func (l List) Evict(now, t ucs.Time, n int) int {
	slices.SortFunc(l, func(a, b Conn) int { return cmp.Compare(a.activity().since, b.activity().since) })
	l = l[:min(len(l), n, maxPerCall)]
	for i, c := range l {
		if t.Before(c.activity().since) {
			return i
		}
		c.Suspend()
		c.activity().since = now // do not propose it again at once if the peer declines
	}
	return len(l)
}
