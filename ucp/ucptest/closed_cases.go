package ucptest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var closedCases = []Case{
	{"a peer that closes its worker or context has closed, not died", closedNotDead},
	{"the peer's close of an endpoint fails nothing", closedEndpoint},
}

// closedNotDead: whatever waits for a peer that closes its worker, or its context, ends with
// ErrPeerClosed. So does what is posted before the close is reported, and after it.
func closedNotDead(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker has no other peer")
	}
	for _, what := range []string{"worker", "context"} {
		x, err := p.Factory.open(ucp.Config{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, x.Close()) })
		peer, err := x.NewWorker(ucp.WorkerConfig{Mode: p.mode})
		require.NoError(t, err)
		m, err := x.Allocate(4096, ucp.MemConfig{})
		require.NoError(t, err)

		failed := make(chan error, 2)
		e, err := p.A.NewEndpoint(peer.Address(), ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { failed <- err }})
		require.NoError(t, err)
		got := peer.TagRecv(make([]byte, 1), 1, exact)
		hello := e.TagSendSync([]byte{1}, 1)
		p.Until(func() bool { peer.Progress(); return hello.Done() && got.Done() })
		require.NoError(t, hello.Err())
		k, err := e.UnpackKey(m.Key())
		require.NoError(t, err)
		put := k.Put(make([]byte, 8), 0)
		p.Until(func() bool { peer.Progress(); return put.Done() })
		require.NoError(t, put.Err())

		tied := p.A.TagRecv(make([]byte, 8), 5, exact).Tie(e)
		if what == "worker" {
			require.NoError(t, peer.Close())
		} else {
			require.NoError(t, x.Close())
		}
		rs := []ucp.Request{ // of these some are posted before the report
			e.TagSendSync([]byte{1}, 2), e.TagSend(pattern(300_000, 1), 2), e.TagSendWith(nil, 2, ucp.Opts{Flags: ucp.ForceRendezvous}),
			e.AMSend(1, nil, pattern(300_000, 1)), e.Flush(), p.A.Flush(),
		}
		_, err = p.Recv(tied)
		require.ErrorIs(t, err, ucp.ErrPeerClosed, what)
		for i, r := range rs {
			require.ErrorIs(t, p.Wait(r), ucp.ErrPeerClosed, "%s: request %d", what, i)
			require.ErrorIs(t, r.Err(), ucp.ErrPeerFailed, "%s: request %d", what, i)
		}
		p.Until(func() bool { return len(failed) > 0 })
		require.ErrorIs(t, <-failed, ucp.ErrPeerClosed, what)
		require.ErrorIs(t, e.Info().Err, ucp.ErrPeerClosed, what)
		for _, r := range []ucp.Request{
			e.TagSend([]byte{1}, 2), e.TagSendUint64(1, 2), e.AMSend(1, nil, nil), k.PutUint64(1, 0), k.Get(make([]byte, 8), 0), e.Flush(), p.A.Flush(),
		} {
			require.ErrorIs(t, p.Wait(r), ucp.ErrPeerClosed, "%s: %s", what, r)
		}
		_, err = p.Recv(p.A.TagRecv(make([]byte, 8), 5, exact).Tie(e))
		require.ErrorIs(t, err, ucp.ErrPeerClosed, what)
		require.Empty(t, failed, "OnFailure is called once")
		require.NoError(t, e.Close())
	}
}

// closedEndpoint: a peer that closes its endpoints to this worker fails nothing here. What waits
// for the peer's program still gets its reply.
func closedEndpoint(t *testing.T, p *Pair) {
	other := p.Connect(p.B, p.A)
	for i, end := range map[ucp.Tag]func(){
		1: func() { require.NoError(t, p.Close(p.B, other)) },
		2: func() { require.NoError(t, p.Close(p.B, p.BA)) },
	} {
		if e := map[ucp.Tag]ucp.Endpoint{1: other, 2: p.BA}[i]; e.Info().Err == nil {
			require.NoError(t, p.Wait(e.TagSend([]byte{1}, i)))
		}
		p.MustRecv(p.A.TagRecv(make([]byte, 1), i, exact))
		tied := p.A.TagRecv(make([]byte, 8), 5, exact).Tie(p.AB)
		sync, long := p.AB.TagSendSync([]byte{1}, 3), p.AB.TagSend(pattern(300_000, 3), 4)
		p.Settle()
		end()
		p.Settle()
		require.NoError(t, p.AB.Info().Err)
		require.False(t, tied.Done())
		tied.Cancel()
		p.MustRecv(p.B.TagRecv(make([]byte, 1), 3, exact))
		p.MustRecv(p.B.TagRecv(make([]byte, 300_000), 4, exact))
		require.NoError(t, p.Wait(sync))
		require.NoError(t, p.Wait(long))
		require.NoError(t, p.Wait(p.AB.Flush()))
	}
}
