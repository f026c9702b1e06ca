package ucptest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var closedCases = []Case{
	{"a peer that closes its worker or context has closed, not died", closedNotDead},
	{"the peer's close of an endpoint fails nothing", closedEndpoint},
	{"a flush of what a peer acknowledged before it left", flushLeft},
	{"the peer aborts one of its endpoints", abortOne},
	{"the peer aborts its last endpoint", abortLast},
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

// errLong is a cause of more than 200 bytes, which end within a character.
var errLong = errors.New("a" + strings.Repeat("ä", 150))

// waitsFor posts, at B, receives that wait for messages of e, an endpoint of A: two matched ones
// that arrive by rendezvous, one that was removed from matching, and an active message that a
// handler retained. The messages stay unfinished while A does nothing.
func (p *Pair) waitsFor(e ucp.Endpoint) (at func() []ucp.RecvRequest, sends []ucp.Request) {
	const long = 400_000
	var kept []ucp.RetainedAM
	require.NoError(p.T, p.B.HandleAM(77, func(m *ucp.AM) { kept = append(kept, m.Retain()) }))
	sends = []ucp.Request{
		e.TagSend(pattern(long, 1), 71), e.TagSendWith(pattern(10, 1), 72, ucp.Opts{Flags: ucp.ForceRendezvous}),
		e.TagSendWith(nil, 73, ucp.Opts{Flags: ucp.ForceRendezvous}),
		e.AMSendWith(77, nil, pattern(long, 1), ucp.Opts{Flags: ucp.ForceRendezvous}),
	}
	var taken ucp.MatchedMessage
	p.Until(func() bool {
		if taken.Len == 0 {
			if m, ok := p.B.TagMprobe(71, exact); ok {
				taken = m
			}
		}
		_, ok := p.B.TagProbe(73, exact)
		return ok && taken.Len > 0 && len(kept) == 1
	})
	return func() []ucp.RecvRequest {
		return []ucp.RecvRequest{
			taken.Recv(make([]byte, long)), kept[0].RecvInto(make([]byte, long)),
		}
	}, sends
}

// abortOne: A aborts one of its two endpoints to B. What waits at B for that endpoint's messages
// ends with the cause; nothing else does.
func abortOne(t *testing.T, p *Pair) {
	if p.mode == ucp.ThreadMulti {
		t.Skip("with the peer driven all the time a message does not stay by half")
	}
	for _, cause := range []error{errCause, errLong, nil} {
		e := p.Connect(p.A, p.B)
		require.NoError(t, p.Wait(p.AB.TagSend(nil, 1)))
		p.MustRecv(p.B.TagRecv(nil, 1, exact))
		at, sends := p.waitsFor(e)
		tied := p.B.TagRecv(make([]byte, 8), 5, exact).Tie(p.BA)
		other, got := p.AB.TagSendSync([]byte("other"), 6), p.B.TagRecv(make([]byte, 5), 7, exact)

		fragments := e.TagSendWith(pattern(4<<20, 2), 74, ucp.Opts{Flags: ucp.ForceEager})
		half := p.B.TagRecv(make([]byte, 4<<20), 74, exact)
		p.B.Progress()
		inHalf := !fragments.Done()
		e.Abort(cause)
		for _, r := range sends {
			require.ErrorIs(t, p.Wait(r), ucp.ErrCanceled)
		}
		p.Settle()
		rs := at()
		if inHalf {
			rs = append(rs, half)
		}
		for i, r := range rs {
			_, err := p.Recv(r)
			requireAborted(t, err, cause, "receive %d", i)
		}
		for _, tag := range []ucp.Tag{72, 73} {
			_, ok := p.B.TagProbe(tag, exact)
			require.False(t, ok, "its announcement is gone")
		}
		require.NoError(t, p.BA.Info().Err)
		require.False(t, tied.Done())
		tied.Cancel()
		require.NoError(t, p.Wait(p.AB.TagSend([]byte("later"), 7)))
		p.MustRecv(got)
		p.MustRecv(p.B.TagRecv(make([]byte, 5), 6, exact))
		require.NoError(t, p.Wait(other))
	}
}

// abortLast: A aborts its last endpoint to B. Everything at B that waits for A ends with the cause.
// Both connect anew afterwards.
func abortLast(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("the endpoint of a worker to itself is at both sides")
	}
	for round, cause := range []error{errCause, errLong, nil} {
		failed := make(chan error, 2)
		e, err := p.B.NewEndpoint(p.A.Address(), ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { failed <- err }})
		require.NoError(t, err)
		idle, _ := p.B.NewEndpoint(p.A.Address(), ucp.EndpointConfig{OnFailure: func(_ ucp.Endpoint, err error) { failed <- err }})
		require.NoError(t, p.Wait(e.TagSend([]byte{1}, 1)))
		p.MustRecv(p.A.TagRecv(make([]byte, 1), 1, exact))
		if round != 1 { // else A has not used its endpoint
			require.NoError(t, p.Wait(p.AB.TagSend([]byte{2}, 2)))
			p.MustRecv(p.B.TagRecv(make([]byte, 1), 2, exact))
		}
		tied := p.B.TagRecv(make([]byte, 8), 5, exact).Tie(e)
		waits := []ucp.Request{e.TagSendSync([]byte{1}, 3), e.TagSendWith(pattern(100, 1), 3, ucp.Opts{Flags: ucp.ForceRendezvous}), e.TagSend(pattern(400_000, 3), 3)}
		p.Settle()
		p.AB.Abort(cause)
		_, err = p.Recv(tied)
		requireAborted(t, err, cause, "tied receive")
		for i, r := range append(waits, e.Flush(), e.TagSend(nil, 1)) {
			requireAborted(t, p.Wait(r), cause, "request %d", i)
		}
		p.Until(func() bool { return len(failed) == 2 })
		requireAborted(t, <-failed, cause, "OnFailure")
		requireAborted(t, <-failed, cause, "OnFailure of an idle endpoint")
		requireAborted(t, idle.Info().Err, cause, "idle endpoint")
		for _, o := range []ucp.Endpoint{e, idle, p.BA} {
			require.NoError(t, p.Close(p.B, o))
		}
		// Drop the messages that arrived.
		for {
			m, ok := p.A.TagMprobe(0, 0)
			if !ok {
				break
			}
			m.Drop()
		}
		p.Settle()
		p.AB, p.BA = p.Connect(p.A, p.B), p.Connect(p.B, p.A)
		require.NoError(t, p.Wait(p.BA.TagSend([]byte{4}, 4)))
		p.MustRecv(p.A.TagRecv(make([]byte, 1), 4, exact))
	}
}

// requireAborted requires that err is the failure of a peer that aborted its endpoint with cause.
func requireAborted(t *testing.T, err, cause error, what string, args ...any) {
	t.Helper()
	require.ErrorIs(t, err, ucp.ErrPeerFailed, append([]any{what}, args...)...)
	require.NotErrorIs(t, err, ucp.ErrPeerClosed, append([]any{what}, args...)...)
	require.ErrorContains(t, err, "aborted the endpoint", append([]any{what}, args...)...)
	switch {
	case cause == nil:
	case errors.Is(cause, errLong):
		require.ErrorContains(t, err, "a"+strings.Repeat("ä", 99), append([]any{what}, args...)...)
		require.NotContains(t, err.Error(), "\uFFFD")
		require.NotContains(t, err.Error(), strings.Repeat("ä", 100))
	default:
		require.ErrorContains(t, err, cause.Error(), append([]any{what}, args...)...)
	}
}

// flushLeft: a peer closes when it has received what was sent. A flush succeeds, posted before or
// after the close is reported, until an operation was refused. A flush of a message that the peer has
// not acknowledged fails.
func flushLeft(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker has no other peer")
	}
	for round := range 12 {
		peer := p.undriven()
		e := p.Connect(p.A, peer)
		const msgs = 40 // some without a completion of their own
		for i := range msgs {
			r := peer.TagRecv(make([]byte, 3000), 1, exact)
			e.TagSend(pattern(1+round*50*(i%2), byte(i)), 1)
			p.Until(func() bool { peer.Progress(); return r.Done() })
		}
		var unacked ucp.Request
		if round%4 == 3 {
			unacked = e.TagSendSync(nil, 2)
			p.Settle()
		}
		before := []ucp.Request{}
		if round%2 == 1 {
			before = append(before, e.Flush(), p.flushOf(p.A))
		}
		require.NoError(t, peer.Close())
		fs := append(before, e.Flush(), p.flushOf(p.A))
		p.Until(func() bool { return e.Info().Err != nil })
		require.ErrorIs(t, e.Info().Err, ucp.ErrPeerClosed)
		fs = append(fs, e.Flush(), p.flushOf(p.A))
		for i, f := range fs {
			err := p.Wait(f)
			if round%4 != 3 {
				require.NoError(t, err, "round %d: flush %d", round, i)
				continue
			}
			if i >= len(before) || err != nil { // the peer may reply to the first before it closes
				require.ErrorIs(t, err, ucp.ErrPeerFailed, "round %d: flush %d", round, i)
			}
		}
		if round%4 == 3 {
			require.Error(t, p.Wait(unacked))
		}
		require.ErrorIs(t, p.Wait(e.TagSend(nil, 1)), ucp.ErrPeerClosed)
		for _, f := range []ucp.Request{e.Flush(), p.flushOf(p.A)} {
			require.ErrorIs(t, p.Wait(f), ucp.ErrPeerClosed, "a message was refused")
		}
		require.NoError(t, e.Close())
		require.NoError(t, p.Wait(p.flushOf(p.A)))
	}
}
