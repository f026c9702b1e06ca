package ucp_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

const talkerEnv = "GOUCX_TEST_TALKER"

// TestTalkerProcess is the other process of TestSenderDies: it sends one long
// message to the worker whose address it is given, and drives until it is killed.
func TestTalkerProcess(t *testing.T) {
	address, err := hex.DecodeString(os.Getenv(talkerEnv))
	require.NoError(t, err)
	if len(address) == 0 {
		return // runs in a process of its own
	}
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	e, err := w.NewEndpoint(address, ucp.EndpointConfig{})
	require.NoError(t, err)
	e.TagSend(make([]byte, 64<<20), 1)
	_ = w.Run(context.Background())
}

// A sender that dies half-way of a message: its receive ends, others go on.
func TestSenderDies(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestTalkerProcess$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%x", talkerEnv, []byte(w.Address())))
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Wait() }()

	in := make([]byte, 64<<20)
	in[8192] = 0xff // the sender's bytes are zero
	r := w.TagRecv(in, 1, exact)
	require.NoError(t, w.WaitUntil(ctx, func() bool { return in[8192] == 0 }), "some of it is here")
	require.False(t, r.Done())
	require.NoError(t, cmd.Process.Kill())
	_, err = r.Wait(ctx)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)

	self, err := w.NewEndpoint(w.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	require.NoError(t, self.TagSend([]byte("alive"), 2).Wait(ctx))
	m, err := w.TagRecv(in, 2, exact).Wait(ctx)
	require.NoError(t, err)
	assert.Equal(t, "alive", string(in[:m.Len]))
}

// A peer that is stopped and then killed: each request ends with the reason, in
// time, and the one callback comes.
func TestReceiverDies(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := startLender(t)
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	failed := 0
	e, err := w.NewEndpoint(l.address, ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) { failed++ }})
	require.NoError(t, err)
	require.NoError(t, e.TagSendWith(make([]byte, 60_000), 1, ucp.Opts{Flags: ucp.ForceEager}).Wait(ctx)) // waits for room, so it was accepted
	require.NoError(t, l.cmd.Process.Signal(syscall.SIGSTOP))
	stopped := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.cmd.Process.Pid))
		require.NoError(t, err)
		return strings.Contains(string(stat), ") T ")
	}
	require.NoError(t, w.WaitUntil(ctx, stopped))

	var rs []ucp.Request
	for len(rs) < 20 {
		if r := e.TagSend(make([]byte, 10_000), 1); r != (ucp.Request{}) {
			rs = append(rs, r)
		}
	}
	rs = append(rs, e.Flush(), w.Flush(), w.TagRecv(nil, 1, exact).Tie(e).Request)
	for range 10_000 {
		w.Progress()
	}
	for _, r := range rs[10:] { // the first may have found room that was freed before
		require.False(t, r.Done(), "a stopped peer fails nothing: %v", r.Err())
	}
	require.NoError(t, l.cmd.Process.Kill())
	start := time.Now()
	for _, r := range rs[10:] {
		var op *ucp.OpError
		require.ErrorAs(t, r.Wait(ctx), &op)
		require.ErrorIs(t, op, ucp.ErrPeerFailed)
		require.NotEmpty(t, op.Peer)
	}
	assert.Less(t, time.Since(start), 10*time.Second) // milliseconds, where the machine is idle
	w.Progress()
	assert.Equal(t, 1, failed)
	require.ErrorIs(t, e.TagSend(nil, 1).Err(), ucp.ErrPeerFailed)
	require.NoError(t, e.Close())
	require.NoError(t, w.Flush().Wait(ctx))
}
