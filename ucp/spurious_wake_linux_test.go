package ucp

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/self"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// Who is woken for nothing again and again sleeps through it for a while, instead
// of turning in a circle.
func TestFruitlessWakeUps(t *testing.T) {
	c, err := Open(Config{Providers: []uct.Component{self.Component()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w, err := c.NewWorker(WorkerConfig{Mode: ThreadSingle, Spin: 1})
	require.NoError(t, err)
	require.NotNil(t, w.t.polling.sleeper.set, "Linux has event descriptors")
	always, err := shmem.NewEventFD() // readable, and nobody reads it
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, always.Close()) })
	require.NoError(t, always.Signal())
	w.t.polling.sleeper.set = shmem.NewPollSet(w.t.polling.wake.signal.FD(), always.FD())

	begin, before := ucs.Now(), w.t.count.Value(cntSlept)
	n := uint64(0)
	for n <= maxSpurious { // where others want the processor it may not run for long
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err = w.TagRecv(nil, 1, 1).Wait(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		n = w.t.count.Value(cntSlept) - before
		require.Less(t, ucs.Now().Sub(begin), time.Minute, "it sleeps through what wakes it")
	}
	rounds := uint64(ucs.Now().Sub(begin)/shortSleep) + 2
	winks := uint64(shortSleep / spuriousTime) // where it is kept from its processor in each of them
	assert.LessOrEqual(t, n, (maxSpurious+1+winks)*rounds, "so many times a millisecond")
}
