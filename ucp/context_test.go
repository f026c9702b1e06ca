package ucp_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// A context closes in good order while others close its workers and memory.
func TestContextCloseBesideOthers(t *testing.T) {
	rounds := 100
	if race.Enabled || testing.Short() {
		rounds = 20
	}
	for range rounds {
		c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t)})
		require.NoError(t, err)
		var all sync.WaitGroup
		for range 4 {
			w, err := c.NewWorker(ucp.WorkerConfig{})
			require.NoError(t, err)
			m, err := c.Allocate(4096, ucp.MemConfig{})
			require.NoError(t, err)
			all.Go(func() { assert.NoError(t, w.Close()) })
			all.Go(func() { assert.NoError(t, m.Close()) })
		}
		require.NoError(t, c.Close())
		all.Wait()
	}
}

// A worker whose close takes its time is waited for.
func TestContextCloseBesideASlowOne(t *testing.T) {
	open := func() (*ucp.Context, *ucp.Worker) {
		c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t), CloseTimeout: 200 * time.Millisecond})
		require.NoError(t, err)
		w, err := c.NewWorker(ucp.WorkerConfig{})
		require.NoError(t, err)
		return c, w
	}
	other, silent := open() // nobody drives it
	defer func() { require.NoError(t, other.Close()) }()
	c, w := open()
	e, err := w.NewEndpoint(silent.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	for e.TagSend(make([]byte, 3000), 1).Done() { // until one waits
	}
	closed := make(chan error)
	go func() { closed <- w.Close() }()
	for err = nil; err == nil; {
		_, err = w.NewEndpoint(silent.Address(), ucp.EndpointConfig{})
	}
	require.ErrorIs(t, err, ucp.ErrClosed, "the close has begun")
	require.NoError(t, c.Close())
	require.ErrorIs(t, <-closed, ucp.ErrTimeout)
}
