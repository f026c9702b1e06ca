package ucptest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

var exitCases = []Case{
	{"the peer closes while a lane to it connects", exitWhileConnecting},
	{"the peer has closed before a lane to it connects", exitBeforeConnecting},
}

// lasting makes transports wait for an answer far longer than promptly.
var lasting = []string{"UCX_RC_CONNECT_TIMEOUT=10m", "UCX_UD_TIMEOUT=10m"}

const (
	closeLimit = 40 * time.Second // of a worker
	promptly   = 15 * time.Second // far more than a close takes on a busy machine
)

// closesPromptly closes w and requires that this does not wait for an answer of a peer.
func closesPromptly(t *testing.T, w *ucp.Worker, when string) {
	t.Helper()
	began := ucs.Now()
	require.NoError(t, w.Close(), when)
	require.Less(t, ucs.Now().Sub(began), promptly, when)
}

// exitWhileConnecting: a peer closes its worker in order when it has received nothing, or
// has just accepted the connection. What was posted ends, and closing this side's worker
// does not wait until the peer counts as lost.
func exitWhileConnecting(t *testing.T, p *Pair) {
	if p.Alone() || p.Factory.Lossy {
		return // there is no peer; the request to connect may be lost, or still under way
	}
	x, err := p.Factory.open(ucp.Config{CloseTimeout: closeLimit}, lasting...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	for _, when := range []string{"at once", "after a while", "accepted"} {
		w, peer := p.workerOf(x, ucp.WorkerConfig{Mode: p.mode}), p.workerOf(x, ucp.WorkerConfig{Mode: p.mode})
		sent := p.Connect(w, peer).TagSend(pattern(5000, 1), 1)
		flush := w.Flush()
		for range 1000 { // the request to connect reaches the peer's interface
			w.Progress()
		}
		if when == "after a while" {
			p.Settle()
		}
		if when == "accepted" {
			p.Until(func() bool { return counted(peer, "accepted") > 0 })
		}
		closesPromptly(t, peer, when)
		closesPromptly(t, w, when)
		require.True(t, sent.Done(), when)
		require.True(t, flush.Done(), when)
		for _, err := range []error{sent.Err(), flush.Err()} {
			if err != nil {
				require.True(t, errors.Is(err, ucp.ErrPeerFailed) || errors.Is(err, ucp.ErrClosed), "%s: %v", when, err)
			}
		}
	}
}

// exitBeforeConnecting: a peer has closed its worker, and its context is open. Over shm the
// first use of its address fails at once. Over rc and ud nothing replies to the request
// to connect: the endpoint fails when the transport's time to connect is over.
func exitBeforeConnecting(t *testing.T, p *Pair) {
	if p.Alone() {
		return // there is no peer
	}
	const limit = 500 * time.Millisecond
	x, err := p.Factory.open(ucp.Config{CloseTimeout: closeLimit}, "UCX_RC_CONNECT_TIMEOUT=500ms", "UCX_UD_TIMEOUT=500ms")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	w, peer := p.workerOf(x, ucp.WorkerConfig{Mode: p.mode}), p.workerOf(x, ucp.WorkerConfig{Mode: p.mode})
	address := peer.Address()
	require.NoError(t, peer.Close())
	began := ucs.Now()
	e, err := w.NewEndpoint(address, ucp.EndpointConfig{})
	require.NoError(t, err)
	e.TagSend(pattern(5000, 1), 1)
	err = p.Wait(e.Flush())
	took := ucs.Now().Sub(began)
	if strings.Contains(p.Factory.Column, "shm") {
		require.ErrorIs(t, err, ucp.ErrUnreachable)
	} else {
		require.ErrorIs(t, err, ucp.ErrPeerFailed)
		require.ErrorContains(t, err, "it does not answer")
		require.GreaterOrEqual(t, took, limit)
	}
	require.Less(t, took, limit+promptly)
	require.ErrorIs(t, err, e.Info().Err, "the endpoint has failed with it")
	closesPromptly(t, w, "after the failure")
}

// counted adds up the counters of that name of all interfaces of a worker.
func counted(w *ucp.Worker, name string) (n uint64) {
	for _, v := range w.Stats().Snapshot() {
		if strings.HasSuffix(v.Name, "."+name) {
			n += v.Value
		}
	}
	return n
}
