package ucp

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// idlers is an iface with connections that are idle since these times, and busy
// ones.
type idlers struct {
	since []ucs.Time
	busy  int
}

func (f *idlers) Active() int { return len(f.since) + f.busy }

func (f *idlers) Candidates(_ ucs.Time, since []ucs.Time) []ucs.Time {
	return append(since, f.since...)
}

func (f *idlers) Evict(_, t ucs.Time, most int) (n int) {
	for n < most && len(f.since) > 0 && !t.Before(f.since[0]) {
		f.since = f.since[1:]
		n++
	}
	return n
}

// The least recently used of all ifaces go to sleep, as many as there are too many,
// and none that is in use.
func TestLullsTakeTheOldest(t *testing.T) {
	a, b := &idlers{since: []ucs.Time{10, 30, 50}}, &idlers{since: []ucs.Time{20, 40, 40, 40}, busy: 2}
	l := idleEviction{maxActive: 9, caches: []uct.ConnectionCache{a, b}}
	now := ucs.Time(100)
	look := func(most int) {
		l.maxActive, now = most, now.Add(evictInterval)
		l.evictIdle(now)
	}
	look(9)
	assert.Len(t, a.since, 3)
	assert.Len(t, b.since, 4)
	look(6)
	assert.Equal(t, []ucs.Time{50}, a.since)
	assert.Equal(t, []ucs.Time{40, 40, 40}, b.since)
	look(4)
	assert.Equal(t, []ucs.Time{50}, a.since)
	assert.Equal(t, []ucs.Time{40}, b.since, "two of three")
	look(1)
	assert.Empty(t, a.since)
	assert.Empty(t, b.since)
	assert.Equal(t, 2, b.Active(), "they are in use")
	b.since, l.maxActive = []ucs.Time{100}, 2
	l.evictIdle(now)
	assert.Len(t, b.since, 1, "not looked at so soon")
}
