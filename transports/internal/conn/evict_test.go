package conn

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

const start = ucs.Time(1)

func TestActivity(t *testing.T) {
	var a Activity
	later := start.Add(minIdle)
	require.False(t, a.idle(start, 0), "seen for the first time")
	require.False(t, a.idle(later-1, 0))
	require.True(t, a.idle(later, 0))
	require.False(t, a.idle(later, 1), "it has sent or received")
	require.False(t, a.idle(later.Add(minIdle)-1, 1))
	require.True(t, a.idle(later.Add(minIdle), 1))
}

func TestEvict(t *testing.T) {
	w := newWorld(2)
	const n = 3 * maxEvict
	for i := range n { // the last is the least recently used one
		p := w.add("a")
		p.idle(start.Add(time.Duration(n-i)), 0)
	}
	since := w.Candidates(start.Add(time.Hour), []ucs.Time{7})
	require.Equal(t, []ucs.Time{7, w.Slots[0].since, w.Slots[1].since}, since[:3])
	require.Len(t, since, 1+n)

	suspended := func() (sum int) {
		for _, p := range w.Slots {
			sum += p.suspension
		}
		return sum
	}
	now := start.Add(time.Hour)
	require.Zero(t, w.Evict(now, now, 0))
	require.Zero(t, w.Evict(now, start, 5), "none is idle for so long")
	require.Zero(t, suspended())

	const last = n - 1
	require.Equal(t, 2, w.Evict(now, w.Slots[last-1].since, 5))
	require.Equal(t, []int{0, 1, 1}, []int{w.Slots[last-2].suspension, w.Slots[last-1].suspension, w.Slots[last].suspension})
	require.Equal(t, now, w.Slots[last].since, "not at once again")

	w.active = 3
	w.EvictIdle(now)
	require.Equal(t, 1, w.Slots[last-2].suspension, "one more than the limit is active")
	w.EvictIdle(now)
	require.Equal(t, 3, suspended(), "not so soon")
	require.Equal(t, maxEvict, w.Evict(now, now, n))
	require.Equal(t, 3+maxEvict, suspended())
	require.Equal(t, 1, w.Slots[last].suspension)
}

// A connection that is busy, awaited or not open stays.
func TestNotIdle(t *testing.T) {
	w := newWorld(0)
	for range 5 {
		w.add("a").idle(start, 0)
	}
	now := start.Add(time.Hour)
	w.Slots[0].busy = true
	w.Slots[1].Life = HungUp
	w.waits = map[uint32]uct.WaitKind{3: uct.WaitForReply, 4: uct.WaitForClose, 99: uct.WaitForReply}
	require.Equal(t, 2, w.Evict(now, now, 5))
	require.Equal(t, []int{0, 0, 0, 1, 1}, []int{
		w.Slots[0].suspension, w.Slots[1].suspension, w.Slots[2].suspension, w.Slots[3].suspension, w.Slots[4].suspension,
	})
	w.waits = nil
	w.QueryWaits(uct.WaitForClose)
	require.Equal(t, uct.WaitNone, w.Slots[2].Awaited)
}
