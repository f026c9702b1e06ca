package ucp_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

func TestOpenErrors(t *testing.T) {
	_, err := ucp.Open(ucp.Config{CloseTimeout: -1, Features: 1 << 31})
	require.ErrorIs(t, err, ucp.ErrInvalid)
	for _, fault := range []string{"Providers", "Features", "CloseTimeout"} {
		assert.ErrorContains(t, err, fault, "all faults are told at once")
	}
	_, err = ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, "UCX_TLS=warp")})
	assert.ErrorContains(t, err, "warp")
	_, err = ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, "UCX_TLS=^self,shm,ib")})
	assert.ErrorContains(t, err, "leaves no transport")
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, "UCX_TLS=rc,ud", "UCX_NET_DEVICES=warp")})
	require.NoError(t, err)
	_, err = c.NewWorker(ucp.WorkerConfig{})
	assert.ErrorIs(t, err, ucp.ErrUnsupported)
	assert.Regexp(t, `no interface works: \w[^\[\]]*; [^\[\]]*$`, err.Error())
	require.NoError(t, c.Close())
}

// settings are those of env alone.
func settings(tb testing.TB, env ...string) *config.Set {
	tb.Helper()
	s, _, err := config.Load(config.Options{Env: env, Dirs: []string{}}, ucp.Tables(transports.All())...)
	require.NoError(tb, err)
	return s
}

// TestNewWorkerErrors: a bad configuration is refused with the name of what is bad.
func TestNewWorkerErrors(t *testing.T) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, "UCX_TLS=self")})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	for says, bad := range map[string]ucp.WorkerConfig{
		"thread mode 3":       {Mode: ucp.ThreadSingle + 1},
		"UnexpectedBudget -1": {UnexpectedBudget: -1},
	} {
		_, err := c.NewWorker(bad)
		require.ErrorIs(t, err, ucp.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
}

func TestErrorsWrapStandardOnes(t *testing.T) {
	assert.ErrorIs(t, ucp.ErrClosed, net.ErrClosed)
	assert.ErrorIs(t, ucp.ErrClosed, ucs.ErrClosed)
	assert.ErrorIs(t, ucp.ErrTimeout, os.ErrDeadlineExceeded)
	assert.ErrorIs(t, ucp.ErrUnsupported, errors.ErrUnsupported)
}

// Nobody is reached by a transport that only talks to itself: each transport is
// listed with its reason.
func TestUnreachable(t *testing.T) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), Settings: settings(t, "UCX_TLS=self")})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	other, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)

	failed := 0
	e, err := w.NewEndpoint(other.Address(), ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) { failed++ }})
	require.NoError(t, err, "nothing is connected yet")
	for range 2 {
		err = e.TagSend([]byte("x"), 1).Wait(t.Context())
		require.ErrorIs(t, err, ucp.ErrUnreachable)
		u, ok := errors.AsType[*ucp.UnreachableError](err)
		require.True(t, ok)
		var names []string
		for _, r := range u.Refused {
			assert.NotEmpty(t, r.Reason)
			names = append(names, r.Transport)
		}
		assert.Contains(t, names, "self")
		assert.Contains(t, names, "shm")
	}
	for range 10 {
		w.Progress()
	}
	assert.Equal(t, 1, failed)
	_, err = w.NewEndpoint(other.Address(), ucp.EndpointConfig{Eager: true})
	require.ErrorIs(t, err, ucp.ErrUnreachable)
	require.NoError(t, e.Close())
}

// The end of a context ends the waiting, not the operation.
func TestWaitContext(t *testing.T) {
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		w, _, ep := newPair(t, "self", mode)
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		buf := make([]byte, 8)
		r := w.TagRecv(buf, 1, exact)
		_, err := r.Wait(ctx)
		require.ErrorIs(t, err, cause)
		require.ErrorIs(t, w.Run(ctx), cause)
		require.ErrorIs(t, w.WaitUntil(ctx, func() bool { return false }), cause)
		ep.TagSendUint64(1, 1)
		m, err := r.Wait(t.Context())
		require.NoError(t, err)
		require.Equal(t, 8, m.Len)
		require.NoError(t, w.WaitUntil(t.Context(), func() bool { return true }))
	}
}

// Finish gives the buffer back.
func TestFinish(t *testing.T) {
	w, _, ep := newPair(t, "self", ucp.ThreadSingle)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	buf := []byte("mine")
	_, err := w.TagRecv(buf, 1, exact).Finish(ctx)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	require.ErrorIs(t, err, cause)
	ep.TagSend([]byte("late"), 1)
	for range 10 {
		w.Progress()
	}
	require.Equal(t, "mine", string(buf))
	m, err := w.TagRecv(buf, 1, exact).Finish(t.Context())
	require.NoError(t, err)
	require.Equal(t, 4, m.Len)

	require.NoError(t, ucp.Request{}.Finish(ctx))
	var last ucp.Request
	for last == (ucp.Request{}) {
		last = ep.TagSend(make([]byte, 4096), 2)
	}
	err = last.Finish(ctx)
	if err != nil { // progress may have been faster than the cancel
		require.ErrorIs(t, err, ucp.ErrCanceled)
	}
	require.True(t, last.Done())
}

func TestSignalAndArm(t *testing.T) {
	for _, tr := range []string{"self", "shm"} {
		w, peer, ep := newPair(t, tr, ucp.ThreadSingle)
		fd, err := peer.EventFD()
		if errors.Is(err, ucp.ErrUnsupported) {
			t.Skip("no event descriptors here")
		}
		require.NoError(t, err)
		require.Positive(t, fd)
		arm := func() {
			for {
				err := peer.Arm()
				if err == nil {
					return
				}
				require.ErrorIs(t, err, ucp.ErrBusy)
				peer.Progress()
			}
		}
		arm()
		assert.False(t, readable(t, fd), "nothing happened")
		peer.Signal()
		assert.True(t, readable(t, fd), "signalled")
		require.ErrorIs(t, peer.Arm(), ucp.ErrBusy)
		arm()
		assert.False(t, readable(t, fd))

		require.NoError(t, ep.TagSend([]byte("wake"), 1).Wait(t.Context()))
		assert.True(t, readable(t, fd), "a message, also the first on its connection")
		buf := make([]byte, 4)
		_, err = peer.TagRecv(buf, 1, exact).Wait(t.Context())
		require.NoError(t, err)
		arm()
		require.NoError(t, ep.TagSend([]byte("wake"), 1).Wait(t.Context()))
		assert.True(t, readable(t, fd))
		_, err = peer.TagRecv(buf, 1, exact).Wait(t.Context())
		require.NoError(t, err)
		require.NoError(t, w.Close())
		require.ErrorIs(t, w.Arm(), ucp.ErrClosed)
		w.Signal()
	}
}

// Sixteen goroutines post and wait on one pair of workers.
func TestManyGoroutines(t *testing.T) {
	for _, tr := range []string{"self", "shm"} {
		t.Run(tr, func(t *testing.T) {
			a, b, ep := newPair(t, tr, ucp.ThreadMulti)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if a != b { // else those who receive drive it
				var driver sync.WaitGroup
				driving, stop := context.WithCancel(ctx)
				driver.Go(func() { _ = a.Run(driving) })
				defer driver.Wait()
				defer stop()
			}
			rounds := 200
			if race.Enabled {
				rounds = 50
			}
			var wg sync.WaitGroup
			var bad atomic.Int32
			for g := range 16 {
				wg.Go(func() {
					tag := ucp.Tag(g)
					out, in := make([]byte, 5000), make([]byte, 5000)
					for i := range rounds {
						out[0], out[4999] = byte(i), byte(g)
						r := b.TagRecv(in, tag, exact)
						s := ep.TagSend(out, tag)
						m, err := r.Wait(ctx)
						if err != nil || m.Len != 5000 || in[0] != byte(i) || in[4999] != byte(g) || s.Wait(ctx) != nil {
							bad.Add(1)
							return
						}
						if i%16 == 0 && ep.Flush().Wait(ctx) != nil {
							bad.Add(1)
						}
						if i%20 == g {
							b.TagRecv(in, 1000, exact).Cancel()
						}
					}
				})
			}
			wg.Wait()
			assert.Zero(t, bad.Load())
		})
	}
}

// A goroutine that waits learns of the worker's close.
func TestCloseWakesWaiters(t *testing.T) {
	_, b, _ := newPair(t, "shm", ucp.ThreadMulti)
	started, ended := make(chan struct{}), make(chan error)
	go func() {
		r := b.TagRecv(make([]byte, 8), 1, exact)
		close(started)
		_, err := r.Wait(context.Background())
		ended <- err
	}()
	<-started
	require.NoError(t, b.Close())
	require.ErrorIs(t, <-ended, ucp.ErrClosed)
}

// Callbacks post, and close their own endpoint.
func TestCallbackReenters(t *testing.T) {
	w, _, ep := newPair(t, "self", ucp.ThreadMulti)
	done := make(chan error, 1)
	buf := make([]byte, 8)
	left := 10
	var f ucp.NotifyFunc
	f = func(c ucp.Completion) {
		if left--; left == 0 || c.Err != nil {
			done <- errors.Join(c.Err, ep.Close())
			return
		}
		w.TagRecv(buf, 1, exact).Notify(f, 0)
		ep.TagSendUint64(uint64(left), 1)
	}
	require.True(t, w.TagRecv(buf, 1, exact).Notify(f, 0))
	ep.TagSendUint64(0, 1)
	require.NoError(t, w.WaitUntil(t.Context(), func() bool { return len(done) == 1 }))
	require.NoError(t, <-done)
	require.ErrorIs(t, ep.TagSendUint64(1, 1).Err(), ucp.ErrClosed)
}

func TestStrings(t *testing.T) {
	w, _, ep := newPair(t, "self", ucp.ThreadSingle)
	assert.Equal(t, "request: done", ucp.Request{}.String())
	r := w.TagRecv(nil, 1, exact)
	assert.Contains(t, r.String(), "tag receive")
	r.Cancel()
	assert.Contains(t, r.String(), "canceled")
	r.Drop()
	assert.Contains(t, w.Address().String(), "worker")
	var last ucp.Request
	for last == (ucp.Request{}) {
		last = ep.TagSend(make([]byte, 4096), 2)
	}
	assert.Contains(t, last.String(), "tag send to ")
	assert.Contains(t, last.String(), "self/")
}

// A first message is noticed within a few looks at the idle interfaces; passes
// are counted, not time.
func TestFirstContact(t *testing.T) {
	for range 5 {
		_, b, ep := newPair(t, "shm", ucp.ThreadSingle)
		for range 5000 {
			b.Progress() // all is quiet, and the interfaces armed
		}
		require.NoError(t, ep.TagSendUint64(1, 1).Wait(t.Context()))
		r := b.TagRecv(make([]byte, 8), 1, exact)
		passes := 0
		for ; !r.Done(); passes++ {
			b.Progress()
		}
		assert.Less(t, passes, 16*1024)
		r.Drop()
	}
}
