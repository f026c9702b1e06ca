package nic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// Peers are checked at an interval. A sleep ends in time for the next check, unless nothing
// waits.
func TestCheckTimer(t *testing.T) {
	var c CheckTimer
	now := ucs.Time(time.Hour)
	require.True(t, c.Start(now, 1))
	require.Zero(t, c.Within(now, true), "nothing waits")
	require.Equal(t, checkInterval-1, c.Within(now+1, false), "something may wait since")
	require.False(t, c.Start(now.Add(checkInterval)-1, 1))
	now = now.Add(checkInterval)
	require.True(t, c.Start(now, 1))
	var s Silence
	s.Over(&c, now, true)
	require.Equal(t, checkInterval, c.Within(now, true))
	now = now.Add(time.Minute)
	require.True(t, c.Start(now, 1_000_000))
	require.False(t, c.Start(now.Add(19*time.Second), 1_000_000), "many connections are checked less often")
}

// A silence begins when something waits, or with the last packet.
func TestSilence(t *testing.T) {
	var c CheckTimer
	var s Silence
	now := ucs.Time(time.Hour)
	s.Received(now)
	require.False(t, s.Over(&c, now, false))
	require.False(t, s.Over(&c, now, true), "it begins")
	require.False(t, s.Over(&c, now.Add(maxSilence-1), true))
	require.True(t, s.Over(&c, now.Add(maxSilence), true))
	s.Received(now.Add(maxSilence))
	s.Received(now)
	require.False(t, s.Over(&c, now.Add(2*maxSilence-1), true))
	require.True(t, s.Over(&c, now.Add(2*maxSilence), true))
	require.False(t, s.Over(&c, now.Add(2*maxSilence), false), "nothing waits any more")
	require.False(t, s.Over(&c, now.Add(2*maxSilence), true))
}
