package ucptest

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var failingCases = []Case{{"109 a failing peer beside a stable one", failingPeer}}

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
