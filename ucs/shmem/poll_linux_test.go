package shmem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPollSet(t *testing.T) {
	a, b := newEvent(t), newEvent(t)
	p := NewPollSet(a.FD(), -1, b.FD())
	wait := func(n int, d time.Duration) int {
		t.Helper()
		k, err := p.Wait(n, d)
		require.NoError(t, err)
		return k
	}
	assert.Zero(t, wait(3, 0))
	assert.Zero(t, wait(3, time.Microsecond))
	require.NoError(t, b.Signal())
	assert.Zero(t, wait(1, 0), "only the first is asked")
	assert.Equal(t, 1, wait(9, -1))
	assert.False(t, p.Ready(0))
	assert.False(t, p.Ready(1))
	assert.True(t, p.Ready(2))

	b.Drain()
	go func() { assert.NoError(t, a.Signal()) }()
	for wait(3, -1) == 0 { // the runtime's own signals may end a wait
	}
	assert.True(t, p.Ready(0))
	assert.False(t, p.Ready(2))
	assert.Zero(t, testing.AllocsPerRun(100, func() { _, _ = p.Wait(3, time.Minute) }))
}
