package conn

import (
	"cmp"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const (
	// evictInterval is the interval at which an interface above its limit of active connections
	// searches for idle ones.
	evictInterval = 10 * time.Millisecond
	// minIdle is the time without traffic after which a connection is idle.
	minIdle = 20 * time.Millisecond
	// maxEvict is the maximum number of suspensions proposed at a time.
	maxEvict = 64
)

// Activity records when a connection was used last, as far as the searches for idle connections
// show.
type Activity struct {
	Awaited uct.WaitKind // what the layer above waits for, as QueryWaits found
	uses    uint64       // count of messages sent and received
	since   ucs.Time     // when that count was seen first; 0: never
}

// idle takes the count of messages sent and received so far. It reports whether the count has
// not changed for minIdle, and the layer above waits for no reply.
func (a *Activity) idle(now ucs.Time, uses uint64) bool {
	if uses != a.uses || a.since == 0 {
		a.uses, a.since = uses, now
	}
	return now.Sub(a.since) >= minIdle && a.Awaited < uct.WaitForReply
}

// QueryWaits asks the layer above for the connections on which it waits for at least least, and
// sets Awaited of all connections.
func (t *Table[N, C]) QueryWaits(least uct.WaitKind) {
	var none C
	for _, c := range t.Slots {
		if c != none {
			c.conn().Awaited = uct.WaitNone
		}
	}
	r, ok := t.hooks.Handler.(uct.WaitReporter)
	if !ok {
		return
	}
	r.ReportWaits(least, func(ep uct.Endpoint, source uint32, w uct.WaitKind) {
		c, ok := ep.(C)
		if !ok {
			c = t.at(source)
		}
		if c != none {
			a := &c.conn().Activity
			a.Awaited = max(a.Awaited, w)
		}
	})
}

// idle returns the connections that can be suspended.
func (t *Table[N, C]) idle(now ucs.Time) (idle []C) {
	var none C
	t.QueryWaits(uct.WaitForReply)
	for _, c := range t.Slots {
		if c == none || c.conn().Life > HalfOpen {
			continue
		}
		if uses, ok := t.hooks.Uses(c); c.conn().idle(now, uses) && ok {
			idle = append(idle, c)
		}
	}
	return idle
}

// EvictIdle suspends idle connections while more than the limit are active. Their peers may
// decline.
func (t *Table[N, C]) EvictIdle(now ucs.Time) {
	excess := t.hooks.Active() - t.hooks.Limit
	if excess > 0 && now.Sub(t.evictedAt) >= evictInterval {
		t.evictedAt = now
		t.Evict(now, now, excess)
	}
}

// Active implements uct.ConnectionCache.
func (t *Table[N, C]) Active() int { return t.hooks.Active() }

// Candidates implements uct.ConnectionCache.
func (t *Table[N, C]) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time {
	for _, c := range t.idle(now) {
		since = append(since, c.conn().since)
	}
	return since
}

// Evict implements uct.ConnectionCache: it proposes suspension for at most n connections that have
// been idle since or longer, the least recently used first. It returns their number.
func (t *Table[N, C]) Evict(now, since ucs.Time, n int) int {
	idle := t.idle(now)
	slices.SortFunc(idle, func(a, b C) int { return cmp.Compare(a.conn().since, b.conn().since) })
	idle = idle[:min(len(idle), n, maxEvict)]
	for i, c := range idle {
		if since.Before(c.conn().since) {
			return i
		}
		c.Suspend()
		c.conn().since = now // do not propose it again at once if the peer declines
	}
	return len(idle)
}
