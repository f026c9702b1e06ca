package lull

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

func (c *conn) Nap() { c.naps++ }

const start = ucs.Time(1)

func TestActivity(t *testing.T) {
	var a Activity
	later := start.Add(idleAfter)
	require.False(t, a.Idle(start, 0), "the first look")
	require.False(t, a.Idle(later-1, 0))
	require.True(t, a.Idle(later, 0))
	require.False(t, a.Idle(later, 1), "it has moved something")
	require.False(t, a.Idle(later.Add(idleAfter)-1, 1))
	require.True(t, a.Idle(later.Add(idleAfter), 1))
}

func TestSleep(t *testing.T) {
	conns := make([]conn, 3*most)
	var l List
	for i := range conns { // the last is the least recently used one
		conns[i].Idle(start.Add(time.Duration(len(conns)-i)), 1)
		l = append(l, &conns[i])
	}
	since := l.Since([]ucs.Time{7})
	require.Equal(t, []ucs.Time{7, conns[0].at, conns[1].at}, since[:3])
	require.Len(t, since, 1+len(conns))

	slept := func() (n int) {
		for i := range conns {
			n += conns[i].naps
		}
		return n
	}
	now := start.Add(time.Hour)
	require.Zero(t, l.Sleep(now, now, 0))
	require.Zero(t, l.Sleep(now, start, 5), "none is idle for so long")
	require.Zero(t, slept())

	last := len(conns) - 1
	require.Equal(t, 2, l.Sleep(now, conns[last-1].at, 5))
	require.Equal(t, []int{0, 1, 1}, []int{conns[last-2].naps, conns[last-1].naps, conns[last].naps})
	require.Equal(t, now, conns[last].at, "not at once again")

	require.Equal(t, 1, l.Sleep(now, now, 1))
	require.Equal(t, 1, conns[last-2].naps)
	require.Equal(t, most, l.Sleep(now, now, len(conns)))
	require.Equal(t, 2+1+most, slept())
	require.Equal(t, 1, conns[last].naps)
}
