package ucp_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// A flush of several waiting parts ends once with its worker: its callback runs
// once, and what was posted later keeps its own result.
func TestCloseEndsAFlushOnce(t *testing.T) {
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t), CloseTimeout: 50 * time.Millisecond})
		require.NoError(t, err)
		w, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
		require.NoError(t, err)
		silent, err := c.NewWorker(ucp.WorkerConfig{Mode: mode}) // nobody drives it
		require.NoError(t, err)
		e, err := w.NewEndpoint(silent.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		for e.TagSend(make([]byte, 3000), 1).Done() { // until one waits
		}
		calls := make(map[uint64]int)
		var fs []ucp.Request
		for i := range uint64(4) {
			f := e.Flush()
			if i%2 == 0 {
				require.True(t, f.Notify(func(c ucp.Completion) {
					assert.ErrorIs(t, c.Err, ucp.ErrClosed)
					calls[c.Cookie]++
				}, i))
				continue
			}
			fs = append(fs, f)
		}
		require.ErrorIs(t, w.Close(), ucp.ErrTimeout)
		w.Progress()
		assert.Equal(t, map[uint64]int{0: 1, 2: 1}, calls)
		for _, f := range fs {
			require.ErrorIs(t, f.Wait(t.Context()), ucp.ErrClosed)
		}
		require.NoError(t, c.Close())
	}
}

// Close waits for an OnFailure that another goroutine runs, but not longer than
// CloseTimeout.
func TestCloseAwaitsOnFailure(t *testing.T) {
	c, err := ucp.Open(ucp.Config{Providers: provider("self"), CloseTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	other, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	begun, release := make(chan struct{}), make(chan struct{})
	calls := 0
	e, err := w.NewEndpoint(other.Address(), ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) {
		close(begun)
		<-release
		calls++
	}})
	require.NoError(t, err)
	var driver sync.WaitGroup
	driver.Go(func() { assert.ErrorIs(t, w.Run(t.Context()), ucp.ErrClosed) })
	require.ErrorIs(t, e.TagSend(nil, 1).Err(), ucp.ErrUnreachable)
	<-begun
	require.ErrorIs(t, e.Close(), ucp.ErrTimeout)
	require.NoError(t, e.Close(), "it is closed")
	close(release)
	require.NoError(t, w.Close())
	driver.Wait()
	require.Equal(t, 1, calls)
}

// A flush that waits for announced messages, in slots below theirs, is out of
// their queue when they end.
func TestCloseEndsAFlushBehindMessages(t *testing.T) {
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t), CloseTimeout: 50 * time.Millisecond})
		require.NoError(t, err)
		w, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
		require.NoError(t, err)
		silent, err := c.NewWorker(ucp.WorkerConfig{Mode: mode}) // nobody drives it
		require.NoError(t, err)
		e, err := w.NewEndpoint(silent.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		var rs []ucp.RecvRequest
		for range 12 {
			rs = append(rs, w.TagRecv(nil, 1, 1))
		}
		for _, r := range rs { // their slots are taken again, the last first
			r.Cancel()
			_, err := r.Wait(t.Context())
			require.ErrorIs(t, err, ucp.ErrCanceled)
		}
		var sent []ucp.Request
		for range 4 {
			sent = append(sent, e.TagSend(make([]byte, 300_000), 1), e.Flush())
		}
		require.ErrorIs(t, w.Close(), ucp.ErrTimeout)
		for i, r := range sent {
			require.ErrorIs(t, r.Wait(t.Context()), ucp.ErrClosed, "request %d", i)
		}
		require.NoError(t, c.Close())
	}
}

// A second Close of a worker returns when the first has ended it; inside a
// callback it is refused.
func TestSecondCloseWaitsForTheFirst(t *testing.T) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t), CloseTimeout: time.Second})
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	silent, err := c.NewWorker(ucp.WorkerConfig{}) // nobody drives it
	require.NoError(t, err)
	e, err := w.NewEndpoint(silent.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	for e.TagSend(make([]byte, 3000), 1).Done() { // until one waits
	}
	inside := make(chan error, 1)
	last := w.TagRecv(nil, 1, 1) // ends late in Close
	require.True(t, last.Notify(func(ucp.Completion) { inside <- w.Close() }, 0))
	first := make(chan error, 1)
	go func() { first <- w.Close() }()
	for err = nil; err == nil; {
		_, err = w.NewEndpoint(silent.Address(), ucp.EndpointConfig{})
	}
	require.ErrorIs(t, err, ucp.ErrClosed, "the close has begun")
	require.NoError(t, w.Close())
	select {
	case err := <-inside:
		require.ErrorIs(t, err, ucp.ErrInvalid)
	default:
		require.Fail(t, "the first is still at work")
	}
	require.ErrorIs(t, <-first, ucp.ErrTimeout)
	require.NoError(t, w.Close())
	require.NoError(t, c.Close())
}
