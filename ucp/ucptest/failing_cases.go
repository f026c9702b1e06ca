package ucptest

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var failingCases = []Case{
	{"109 a failing peer beside a stable one", failingPeer},
	{"a receive from any source beside a failing peer", failingAnySource},
}

// failingPeer: a peer that does nothing goes away with operations of every kind
// on their way to it. Each ends, the failure is reported once, what comes later ends
// with the same, and the traffic with another peer is not moved by any of it.
func failingPeer(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker has no other peer")
	}
	victim := p.undriven()
	m, err := p.Context.Allocate(4096, ucp.MemConfig{})
	require.NoError(t, err)
	var calls atomic.Int32
	e, err := p.A.NewEndpoint(victim.Address(), ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) { calls.Add(1) }})
	require.NoError(t, err)
	k, err := e.UnpackKey(m.Key())
	require.NoError(t, err)

	rs := []ucp.Request{
		e.TagSend(pattern(300_000, 1), 1), e.TagSendSync([]byte{1}, 1), e.TagSendSync(pattern(300_000, 1), 1),
		e.TagSendWith(nil, 1, ucp.Opts{Flags: ucp.ForceRendezvous}), e.AMSend(1, []byte("h"), pattern(300_000, 1)),
	}
	for range 300 {
		rs = append(rs, e.TagSend(pattern(3000, 1), 1), k.Put(pattern(100, 1), 0))
	}
	rs = append(rs, e.Flush(), p.A.Flush())
	tied := p.A.TagRecv(make([]byte, 8), 5, exact).Tie(e)
	stable := func(n uint64) {
		p.AB.TagSendUint64(n, 1)
		p.BA.TagSendUint64(n, 2)
		buf := make([]byte, 8)
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
		p.MustRecv(p.A.TagRecv(buf, 2, exact))
		sync := p.AB.TagSendSync(nil, 3)
		p.MustRecv(p.B.TagRecv(nil, 3, exact))
		require.NoError(t, p.Wait(sync))
	}
	stable(1)
	require.NoError(t, victim.Close())
	stable(2)

	for i, r := range rs {
		if err := p.Wait(r); err != nil {
			require.ErrorIs(t, err, ucp.ErrPeerFailed, "request %d", i)
		}
	}
	require.ErrorIs(t, rs[len(rs)-2].Err(), ucp.ErrPeerFailed, "the flush of the endpoint")
	_, err = p.Recv(tied)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	p.Until(func() bool { return calls.Load() > 0 })
	first := e.Info().Err
	require.ErrorIs(t, first, ucp.ErrPeerFailed)
	for i, r := range rs {
		if err := r.Err(); err != nil {
			require.ErrorIs(t, err, first, "request %d, with the reason", i)
		}
	}
	for _, r := range []ucp.Request{
		e.TagSend(nil, 1), e.TagSendSync(nil, 1), e.TagSendUint64(1, 1), e.AMSend(1, nil, nil), e.Flush(),
		k.Put([]byte{1}, 0), k.PutUint64(1, 0), k.Get(make([]byte, 1), 0),
	} {
		require.ErrorIs(t, p.Wait(r), first, "%s", r)
	}
	stable(3)
	assert.Equal(t, int32(1), calls.Load())
	require.NoError(t, e.Close())
	require.NoError(t, p.Wait(p.A.Flush()), "the failure went with its endpoint")
	stable(4)
}

// failingAnySource: a receive that is tied to all endpoints ends with the first that fails,
// also one that was not used before, and names the peer. It still receives, and the end of an
// endpoint that its own program closes is none of its business.
func failingAnySource(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker has no other peer")
	}
	a := p.newWorker(ucp.WorkerConfig{Mode: p.mode})
	ab, ba := p.Connect(a, p.B), p.Connect(p.B, a)
	buf := make([]byte, 8)
	victim := p.NewWorker()
	var calls atomic.Int32
	e, err := a.NewEndpoint(victim.Address(), ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) { calls.Add(1) }})
	require.NoError(t, err)
	closed := p.Connect(a, p.A)

	waiting := a.TagRecv(buf, 5, exact).TieAny()
	other := a.TagRecv(buf, 6, exact)
	fragments := a.TagRecv(make([]byte, 300_000), 7, exact).TieAny()
	ba.TagSendUint64(1, 5)
	require.Equal(t, 8, p.MustRecv(waiting).Len)
	require.Equal(t, waiting, waiting.TieAny(), "too late: nothing happens")
	long := ba.TagSendWith(pattern(300_000, 1), 7, ucp.Opts{Flags: ucp.ForceEager})
	require.Equal(t, 300_000, p.MustRecv(fragments).Len)
	require.NoError(t, p.Wait(long))
	waiting = a.TagRecv(buf, 5, exact).TieAny()
	require.NoError(t, p.Close(a, closed))
	p.Settle()
	require.False(t, waiting.Done(), "an endpoint that its own program closes")
	p.Until(func() bool { return len(e.Info().Lanes) > 0 })
	back := p.Connect(victim, a) // the victim has accepted the connection
	back.TagSendUint64(1, 5)
	require.Equal(t, 8, p.MustRecv(waiting).Len, "the victim's message")

	waiting = a.TagRecv(buf, 5, exact).TieAny()
	require.NoError(t, victim.Close())
	_, err = p.Recv(waiting)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	var failure *ucp.OpError
	require.ErrorAs(t, err, &failure)
	require.Equal(t, e.Info().Peer, failure.Peer, "it names the peer")
	require.ErrorIs(t, err, e.Info().Err)
	require.False(t, other.Done(), "a receive that is not tied")
	p.Until(func() bool { return calls.Load() == 1 })

	_, err = p.Recv(a.TagRecv(buf, 5, exact).TieAny())
	require.ErrorIs(t, err, ucp.ErrPeerFailed, "a failure between two receives")
	require.NoError(t, e.Close())
	waiting = a.TagRecv(buf, 5, exact).TieAny()
	ba.TagSendUint64(1, 5)
	require.Equal(t, 8, p.MustRecv(waiting).Len, "the program goes on without the peer")
	require.NoError(t, p.Wait(ab.Flush()))
	other.Cancel()
	other.Drop()
}
