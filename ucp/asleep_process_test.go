package ucp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// What waits for a peer ends when the peer is killed, also where more connections are
// live than may be, so that idle ones are put to sleep.
func TestPeerDiesAsleep(t *testing.T) {
	sync := func(_ *ucp.Worker, e ucp.Endpoint) ucp.Request { return e.TagSendSync([]byte{1}, 1) }
	announced := func(_ *ucp.Worker, e ucp.Endpoint) ucp.Request { return e.TagSend(make([]byte, 1<<20), 1) }
	tied := func(w *ucp.Worker, e ucp.Endpoint) ucp.Request { return w.TagRecv(nil, 2, exact).Tie(e).Request }
	waits := map[string][]func(*ucp.Worker, ucp.Endpoint) ucp.Request{
		"sync": {sync}, "announced": {announced}, "tied": {tied}, "all": {sync, announced, tied},
	}
	for k, v := range map[string]string{
		"UCX_SOFT_LINK": "udp", "UCX_SOFT_ADDR": "127.0.0.1", "UCX_MAX_LIVE_CONNECTIONS": "1",
		"UCX_RC_TIMEOUT": "50ms", "UCX_RC_KEEPALIVE_INTERVAL": "500ms", "UCX_RC_CONNECT_TIMEOUT": "2s",
	} {
		t.Setenv(k, v)
	}
	for _, transport := range []string{"shm", "rc"} {
		t.Run(transport, func(t *testing.T) {
			t.Setenv("UCX_TLS", transport)
			for name, posts := range waits {
				t.Run(name, func(t *testing.T) { dieAsleep(t, name == "tied", posts) })
			}
		})
	}
}

func dieAsleep(t *testing.T, tied bool, posts []func(*ucp.Worker, ucp.Endpoint) ucp.Request) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	victim, other := startLender(t), startLender(t)
	c, err := ucp.Open(ucp.Config{Providers: transports.All(), CloseTimeout: time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	e, err := w.NewEndpoint(victim.address, ucp.EndpointConfig{})
	require.NoError(t, err)
	e.TagSend([]byte{1}, 3)
	require.NoError(t, e.Flush().Wait(ctx))
	var rs []ucp.Request
	for _, post := range posts {
		rs = append(rs, post(w, e))
	}
	f, err := w.NewEndpoint(other.address, ucp.EndpointConfig{})
	require.NoError(t, err)
	f.TagSend([]byte{1}, 3)
	require.NoError(t, f.Flush().Wait(ctx))
	for w.LiveConnections() > 1 { // one of the two sleeps
		if tied { // the victim's, since the other is in use
			f.TagSend([]byte{1}, 3)
		}
		began := time.Now()
		require.NoError(t, w.WaitUntil(ctx, func() bool { return time.Since(began) > time.Millisecond }))
	}
	left := time.Now().Add(time.Second) // the queue pair that was left lingers for half as long
	require.NoError(t, w.WaitUntil(ctx, func() bool { return time.Now().After(left) }))
	for _, r := range rs {
		require.False(t, r.Done())
	}

	require.NoError(t, victim.cmd.Process.Kill())
	for _, r := range rs {
		require.ErrorIs(t, r.Wait(ctx), ucp.ErrPeerFailed)
	}
	require.ErrorIs(t, e.TagSend(nil, 1).Wait(ctx), ucp.ErrPeerFailed)
	require.NoError(t, f.TagSend(nil, 3).Wait(ctx))
}
