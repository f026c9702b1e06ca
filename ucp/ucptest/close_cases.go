package ucptest

import (
	"errors"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var closeCases = []Case{
	{"close of an unused endpoint, twice", closeUnused},
	{"92 close flushes", closeFlushes},
	{"a closed handle never reaches its heir", closeHeir},
	{"94 abort ends waiting sends with the cause", closeAbort},
	{"abort gives up a message sent by half", closeGiveUp},
	{"a tied receive ends with its endpoint", closeTied},
	{"worker close ends everything", closeWorker},
	{"93 the peer's close fails the endpoint once", closePeer},
	{"106 eager endpoint, and what it tells of itself", closeEager},
	{"a damaged address", closeAddress},
}

var errCause = errors.New("the cause")

func closeUnused(t *testing.T, p *Pair) {
	e := p.Connect(p.A, p.B)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	e.Abort(errCause)
	require.ErrorIs(t, e.TagSend(nil, 1).Wait(p.deadline), ucp.ErrClosed)
	require.ErrorIs(t, e.TagSendUint64(1, 1).Err(), net.ErrClosed)
	require.ErrorIs(t, e.TagSendInline(nil, 1).Err(), ucp.ErrClosed)
	require.ErrorIs(t, e.TagSendV(nil, 1).Err(), ucp.ErrClosed)
	require.ErrorIs(t, e.Info().Err, ucp.ErrClosed)
	require.Zero(t, e.MaxInline())
}

func closeFlushes(t *testing.T, p *Pair) {
	e := p.Connect(p.A, p.B)
	p.meet(e)
	n, _ := fill(p, e, 3000)
	require.NoError(t, p.Close(p.A, e))
	drain(p, n, 3000)
}

func closeHeir(t *testing.T, p *Pair) {
	old := p.Connect(p.A, p.B)
	require.NoError(t, p.Wait(old.TagSend([]byte{1}, 1)))
	require.NoError(t, p.Close(p.A, old))
	heir := p.Connect(p.A, p.B)
	require.NoError(t, p.Wait(heir.TagSend([]byte{2}, 1)))
	require.ErrorIs(t, old.TagSend([]byte{3}, 1).Err(), ucp.ErrClosed)
	require.NotEqual(t, old, heir)
	buf := make([]byte, 1)
	for want := byte(1); want <= 2; want++ {
		p.MustRecv(p.B.TagRecv(buf, 1, exact))
		require.Equal(t, want, buf[0])
	}
}

func closeAbort(t *testing.T, p *Pair) {
	e := p.Connect(p.A, p.B)
	p.meet(e)
	n, last := fill(p, e, 3000)
	f := e.Flush()
	e.Abort(errCause)
	for _, r := range []ucp.Request{last, f} {
		if p.mode == ucp.ThreadMulti && r.Err() == nil {
			continue // it got out meanwhile
		}
		require.True(t, r.Done())
		require.ErrorIs(t, r.Err(), ucp.ErrCanceled)
		require.ErrorIs(t, r.Err(), errCause)
		require.ErrorIs(t, r.Wait(p.deadline), errCause, "a second look")
		var op *ucp.OpError
		require.ErrorAs(t, r.Err(), &op)
		require.NotEmpty(t, op.Peer)
	}
	require.ErrorIs(t, e.TagSend(nil, 1).Err(), ucp.ErrClosed)
	// Others are not moved.
	require.NoError(t, p.Wait(p.BA.TagSend([]byte{9}, 2)))
	p.MustRecv(p.A.TagRecv(make([]byte, 1), 2, exact))
	_ = n
}

// closeGiveUp aborts an endpoint whose long message waits while another endpoint
// to the same peer goes on.
func closeGiveUp(t *testing.T, p *Pair) {
	if p.mode == ucp.ThreadMulti {
		t.Skip("with the peer driven all the time a message does not stay by half")
	}
	require.NoError(t, p.Wait(p.AB.TagSend(nil, 3)))
	p.MustRecv(p.B.TagRecv(nil, 3, exact))
	probed := func() bool { _, found := p.B.TagProbe(1, exact); return found }
	for _, late := range []bool{false, true} {
		e := p.Connect(p.A, p.B)
		buf := make([]byte, 1<<20)
		var rr ucp.RecvRequest
		if !late {
			rr = p.B.TagRecv(buf, 1, exact)
		}
		r := e.TagSend(pattern(1<<20, 1), 1)
		require.False(t, r.Done())
		after := p.AB.TagSend([]byte("next"), 2)
		if late {
			p.Until(probed)
		}
		p.B.Progress()
		e.Abort(errCause)
		require.ErrorIs(t, r.Err(), errCause)
		next := make([]byte, 4)
		p.MustRecv(p.B.TagRecv(next, 2, exact))
		require.Equal(t, "next", string(next))
		require.NoError(t, p.Wait(after))
		if late {
			p.Until(func() bool { return !probed() })
			rr = p.B.TagRecv(buf, 1, exact)
			p.Settle()
			require.False(t, rr.Done(), "nothing of it is left")
			rr.Cancel()
		}
		_, err := p.Recv(rr)
		if late {
			require.ErrorIs(t, err, ucp.ErrCanceled)
			continue
		}
		require.ErrorIs(t, err, ucp.ErrPeerFailed)
		require.ErrorContains(t, err, errCause.Error())
	}
}

func closeTied(t *testing.T, p *Pair) {
	e := p.connectWorker(p.A, p.B)
	buf := make([]byte, 8)
	tied := p.A.TagRecv(buf, 5, exact).Tie(e)
	free := p.A.TagRecv(buf, 5, exact)
	matched := p.A.TagRecv(buf, 6, exact).Tie(e)
	p.BA.TagSendUint64(1, 6)
	p.Until(matched.Done)
	require.NoError(t, e.Close())
	_, err := p.Recv(tied)
	require.ErrorIs(t, err, ucp.ErrClosed)
	p.MustRecv(matched)
	require.False(t, free.Done())
	p.BA.TagSendUint64(1, 5)
	p.MustRecv(free)
	_, err = p.Recv(p.A.TagRecv(buf, 5, exact).Tie(e))
	require.ErrorIs(t, err, ucp.ErrClosed, "tied to a closed endpoint")
}

func closeWorker(t *testing.T, p *Pair) {
	w := p.NewWorker()
	peer := w
	if w != p.B && p.A != p.B {
		peer = p.B
	}
	e := p.Connect(w, peer)
	r := w.TagRecv(make([]byte, 8), 5, exact)
	require.NoError(t, p.Wait(e.TagSend([]byte{1}, 9)))
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	require.True(t, r.Done())
	_, err := r.Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.ErrorIs(t, e.TagSend(nil, 1).Err(), ucp.ErrClosed)
	_, err = w.TagRecv(nil, 1, exact).Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrClosed)
	_, err = w.NewEndpoint(p.A.Address(), ucp.EndpointConfig{})
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.ErrorIs(t, w.Run(p.deadline), ucp.ErrClosed)
	fd, err := w.EventFD()
	require.Equal(t, -1, fd)
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.ErrorIs(t, w.Arm(), ucp.ErrClosed)
	require.NoError(t, e.Close())
	require.Zero(t, w.Progress())
}

func closePeer(t *testing.T, p *Pair) {
	if p.A == p.B {
		t.Skip("a worker is not its own peer's death")
	}
	victim := p.NewWorker()
	var calls atomic.Int32
	var reason atomic.Pointer[error]
	e, err := p.A.NewEndpoint(victim.Address(), ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) {
		calls.Add(1)
		reason.Store(&err)
	}})
	require.NoError(t, err)
	require.NoError(t, p.Wait(e.TagSend([]byte{1}, 1)))
	tied := p.A.TagRecv(make([]byte, 8), 5, exact).Tie(e)
	p.Settle()
	require.NoError(t, victim.Close())
	_, err = p.Recv(tied)
	require.ErrorIs(t, err, ucp.ErrPeerFailed)
	p.Until(func() bool { return calls.Load() > 0 })
	p.Settle()
	assert.Equal(t, int32(1), calls.Load())
	assert.ErrorIs(t, *reason.Load(), ucp.ErrPeerFailed)
	for _, r := range []ucp.Request{e.TagSend(nil, 1), e.Flush(), e.TagSendUint64(1, 1), p.A.Flush()} {
		var op *ucp.OpError
		require.ErrorAs(t, p.Wait(r), &op)
		assert.ErrorIs(t, op, ucp.ErrPeerFailed)
		assert.NotEmpty(t, op.Peer)
	}
	assert.ErrorIs(t, e.Info().Err, ucp.ErrPeerFailed)
	require.NoError(t, e.Close())
	// Others go on.
	p.AB.TagSendUint64(3, 1)
	p.MustRecv(p.B.TagRecv(make([]byte, 8), 1, exact))
	require.NoError(t, p.Wait(p.A.Flush()))
}

func closeEager(t *testing.T, p *Pair) {
	e, err := p.A.NewEndpoint(p.B.Address(), ucp.EndpointConfig{Eager: true})
	require.NoError(t, err)
	i := e.Info()
	require.Len(t, i.Lanes, 1)
	require.NotEmpty(t, i.Peer)
	require.Positive(t, i.Lanes[0].Whole)
	require.NoError(t, p.Close(p.A, e))
}

func closeAddress(t *testing.T, p *Pair) {
	a := p.B.Address()
	for n := range a {
		_, err := p.A.NewEndpoint(a[:n], ucp.EndpointConfig{})
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
	for i := range a {
		bad := append(ucp.Address(nil), a...)
		bad[i] ^= 1
		_, err := p.A.NewEndpoint(bad, ucp.EndpointConfig{})
		require.ErrorIs(t, err, ucp.ErrInvalid)
	}
}
