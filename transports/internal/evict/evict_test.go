package evict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

type conn struct {
	Activity
	naps int
}

func (c *conn) Suspend() { c.naps++ }

const start = ucs.Time(1)

func TestActivity(t *testing.T) {
	var a Activity
	later := start.Add(minIdle)
	require.False(t, a.Idle(start, 0), "the first look")
	require.False(t, a.Idle(later-1, 0))
	require.True(t, a.Idle(later, 0))
	require.False(t, a.Idle(later, 1), "it has moved something")
	require.False(t, a.Idle(later.Add(minIdle)-1, 1))
	require.True(t, a.Idle(later.Add(minIdle), 1))
}

func TestSleep(t *testing.T) {
	conns := make([]conn, 3*maxPerCall)
	var l List
	for i := range conns { // the last is the least recently used one
		conns[i].Idle(start.Add(time.Duration(len(conns)-i)), 1)
		l = append(l, &conns[i])
	}
	since := l.IdleSince([]ucs.Time{7})
	require.Equal(t, []ucs.Time{7, conns[0].since, conns[1].since}, since[:3])
	require.Len(t, since, 1+len(conns))

	slept := func() (n int) {
		for i := range conns {
			n += conns[i].naps
		}
		return n
	}
	now := start.Add(time.Hour)
	require.Zero(t, l.Evict(now, now, 0))
	require.Zero(t, l.Evict(now, start, 5), "none is idle for so long")
	require.Zero(t, slept())

	last := len(conns) - 1
	require.Equal(t, 2, l.Evict(now, conns[last-1].since, 5))
	require.Equal(t, []int{0, 1, 1}, []int{conns[last-2].naps, conns[last-1].naps, conns[last].naps})
	require.Equal(t, now, conns[last].since, "not at once again")

	require.Equal(t, 1, l.Evict(now, now, 1))
	require.Equal(t, 1, conns[last-2].naps)
	require.Equal(t, maxPerCall, l.Evict(now, now, len(conns)))
	require.Equal(t, 2+1+maxPerCall, slept())
	require.Equal(t, 1, conns[last].naps)
}
