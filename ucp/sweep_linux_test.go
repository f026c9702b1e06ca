package ucp_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

// done has a new worker end a receive well, of which nobody reads the outcome, and
// returns the worker, the receive and what it holds.
func done(t *testing.T) (*ucp.Worker, ucp.RecvRequest, weak.Pointer[byte]) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle, Spin: 1})
	require.NoError(t, err)
	e, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	buf := make([]byte, 1<<20)
	r := w.TagRecv(buf, 1, ^ucp.Tag(0))
	e.TagSendUint64(1, 1)
	for !r.Done() {
		w.Progress()
	}
	return w, r, weak.Make(&buf[0])
}

// A worker whose wait sleeps gives the buffers back, though it makes hardly a pass.
func TestBuffersOfASleepingWorker(t *testing.T) {
	w, r, held := done(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, w.Run(ctx), context.DeadlineExceeded)
	runtime.GC()
	require.Nil(t, held.Value())
	_, err := r.Wait(t.Context())
	require.NoError(t, err)
}

// A program that waits for the worker's EventFD drives it: the buffers of what has
// ended well are given back within a second, and the program is not woken afterwards.
func TestBuffersOfAnArmedWorker(t *testing.T) {
	w, _, _ := done(t)
	fd, err := w.EventFD()
	require.NoError(t, err)
	wakes := func(within time.Duration) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(within.Milliseconds()))
		require.True(t, err == nil || errors.Is(err, unix.EINTR))
		return n > 0
	}
	arm := func() {
		for w.Arm() != nil {
			w.Progress()
		}
	}
	arm() // sweeps
	e, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	buf := make([]byte, 1<<20)
	held := weak.Make(&buf[0])
	r := w.TagRecv(buf, 1, ^ucp.Tag(0))
	e.TagSendUint64(1, 1)
	for !r.Done() {
		w.Progress()
	}
	arm()
	start := ucs.Now()
	for runtime.GC(); held.Value() != nil; runtime.GC() {
		require.Less(t, ucs.Now().Sub(start), 20*time.Second)
		if wakes(100 * time.Millisecond) {
			arm()
		}
	}
	for wakes(0) {
		arm()
	}
	require.False(t, wakes(time.Second), "nothing is to be done")
	_, err = r.Wait(t.Context())
	require.NoError(t, err)
}
