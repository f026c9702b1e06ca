package ucptest

import (
	"crypto/rand"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/wireup"
)

var onFailureCases = []Case{
	{"OnFailure: called before Close or Abort returns", onFailureClose},
	{"OnFailure: a peer gone before first use", onFailureGone},
	{"OnFailure: called before Close of the worker returns", onFailureWorker},
	{"OnFailure: after the handler that closes the endpoint", onFailureHandler},
	{"OnFailure: after the callback that closes the endpoint", onFailureNotify},
	{"OnFailure: the callback of a failed send closes the endpoint", onFailureSend},
	{"OnFailure: closes its endpoint and another", onFailureNested},
	{"OnFailure: not called for an endpoint that was not made", onFailureEager},
}

// unreachable is the address of a worker without interfaces: first use of an endpoint
// to it fails at once, over every transport.
func unreachable(t *testing.T) ucp.Address {
	var v wireup.View
	_, _ = rand.Read(v.Worker[:]) // never fails
	a, err := v.Append(nil)
	require.NoError(t, err)
	return a
}

// events is a log of callbacks, which any goroutine may write.
type events struct {
	mu   sync.Mutex
	list []string
}

func (l *events) add(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, s)
}

func (l *events) get() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.list...)
}

func (l *events) count(s string) (n int) {
	for _, e := range l.get() {
		if e == s {
			n++
		}
	}
	return n
}

// endpoint makes an endpoint of w to a, whose OnFailure is logged as name.
func (l *events) endpoint(t *testing.T, w *ucp.Worker, a ucp.Address, name string) ucp.Endpoint {
	e, err := w.NewEndpoint(a, ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) { l.add(name) }})
	assert.NoError(t, err)
	return e
}

// fail makes e, which is to an unreachable worker, fail.
func fail(t *testing.T, e ucp.Endpoint) {
	assert.ErrorIs(t, e.TagSend([]byte{1}, 1).Err(), ucp.ErrUnreachable)
	assert.ErrorIs(t, e.Info().Err, ucp.ErrUnreachable)
}

func onFailureClose(t *testing.T, p *Pair) {
	a := unreachable(t)
	ends := map[string]func(ucp.Endpoint) error{
		"Close": ucp.Endpoint.Close,
		"Abort": func(e ucp.Endpoint) error { e.Abort(errCause); return nil },
	}
	for name, end := range ends {
		for range scaled(200) {
			var calls atomic.Int32
			var ep ucp.Endpoint
			var reason error
			e, err := p.A.NewEndpoint(a, ucp.EndpointConfig{OnFailure: func(e ucp.Endpoint, err error) {
				ep, reason = e, err
				runtime.Gosched()
				calls.Add(1)
			}})
			require.NoError(t, err)
			fail(t, e)
			require.NoError(t, end(e))
			require.Equal(t, int32(1), calls.Load(), name)
			require.Equal(t, e, ep)
			require.ErrorIs(t, reason, ucp.ErrUnreachable)
			require.NoError(t, e.Close())
			p.A.Progress()
			require.Equal(t, int32(1), calls.Load(), name)
		}
	}
	var log events
	require.NoError(t, log.endpoint(t, p.A, a, "unused").Close())
	e := log.endpoint(t, p.A, p.B.Address(), "live")
	require.NoError(t, p.Wait(e.TagSend(nil, 1)))
	p.MustRecv(p.B.TagRecv(nil, 1, exact))
	require.NoError(t, p.Close(p.A, e))
	p.Settle()
	require.Empty(t, log.get(), "an endpoint that did not fail")
}

func onFailureGone(t *testing.T, p *Pair) {
	victim := p.undriven()
	a := victim.Address()
	require.NoError(t, victim.Close())
	var log events
	e := log.endpoint(t, p.A, a, "failed")
	r := e.TagSend([]byte{1}, 1)
	if r.Err() != nil {
		require.NoError(t, e.Close())
		require.Equal(t, []string{"failed"}, log.get())
		return
	}
	failed := e.Info().Err != nil // or the transport still tries to connect
	e.Abort(errCause)
	calls := log.get()
	require.LessOrEqual(t, len(calls), 1)
	require.True(t, !failed || len(calls) == 1)
	p.Settle()
	require.Equal(t, calls, log.get(), "a call after Abort")
}

// onFailureWorker closes workers that only their Close drives.
func onFailureWorker(t *testing.T, p *Pair) {
	w := p.undriven()
	var log events
	e := log.endpoint(t, w, unreachable(t), "failed")
	fail(t, e)
	r := w.TagRecv(nil, 1, exact)
	require.True(t, r.Notify(func(c ucp.Completion) {
		assert.ErrorIs(t, c.Err, ucp.ErrClosed)
		log.add("notified")
	}, 0))
	require.NoError(t, w.Close())
	require.ElementsMatch(t, []string{"failed", "notified"}, log.get())
	require.ErrorIs(t, e.TagSend(nil, 1).Err(), ucp.ErrClosed, "the worker takes calls")
	require.Zero(t, w.Progress())
	require.NoError(t, e.Close())
	require.Len(t, log.get(), 2)
}

// closesInside makes an endpoint of w fail and closes it, in a callback.
func (l *events) closesInside(t *testing.T, w *ucp.Worker, a ucp.Address) {
	e := l.endpoint(t, w, a, "failed")
	fail(t, e)
	l.add("callback")
	assert.ErrorIs(t, w.Close(), ucp.ErrInvalid, "close of the worker in its callback")
	assert.NoError(t, e.Close())
	l.add("closed")
}

func onFailureHandler(t *testing.T, p *Pair) {
	a := unreachable(t)
	var log events
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) { log.closesInside(t, p.B, a) }))
	require.NoError(t, p.B.HandleAM(2, func(*ucp.AM) {
		e, err := p.B.NewEndpoint(a, ucp.EndpointConfig{OnFailure: func(ucp.Endpoint, error) {
			assert.ErrorIs(t, p.B.WaitUntil(p.deadline, func() bool { return false }), ucp.ErrInvalid, "the handler's message is being taken in")
			assert.ErrorIs(t, p.Context.Close(), ucp.ErrInvalid)
			assert.Zero(t, p.B.Progress())
			log.closesInside(t, p.B, a)
		}})
		assert.NoError(t, err)
		fail(t, e)
		e.Abort(errCause)
		log.add("aborted")
	}))
	one := []string{"callback", "closed", "failed"}
	var want []string
	for _, id := range []ucp.AMID{1, 1, 2, 1, 2} {
		data := pattern(int(id)*10, 1)
		if len(want) > 6 {
			data = pattern(300_000, 1) // not as the short ones
		}
		p.AB.AMSend(id, nil, data)
		if id == 2 {
			want = append(want, "aborted")
		}
		want = append(want, one...)
	}
	p.Until(func() bool { return log.count("closed") == 5 })
	p.Settle()
	require.Equal(t, want, log.get())
}

func onFailureNotify(t *testing.T, p *Pair) {
	a := unreachable(t)
	var log events
	const n = 3
	for range n {
		r := p.A.TagRecv(nil, 1, exact)
		require.True(t, r.Notify(func(ucp.Completion) {
			log.closesInside(t, p.A, a)
			assert.ErrorIs(t, p.Context.Close(), ucp.ErrInvalid)
		}, 0))
	}
	for range n {
		p.BA.TagSend(nil, 1)
	}
	p.Until(func() bool { return log.count("closed") == n })
	p.Settle()
	var want []string
	for range n {
		want = append(want, "callback", "closed", "failed")
	}
	require.Equal(t, want, log.get())
}

func onFailureSend(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("a worker has no other peer")
	}
	victim := p.undriven()
	var log events
	e := log.endpoint(t, p.A, victim.Address(), "failed")
	const n = 3
	for range n {
		r := e.TagSendSync([]byte{1}, 1)
		require.True(t, r.Notify(func(c ucp.Completion) {
			assert.Error(t, c.Err)
			assert.NoError(t, e.Close())
			log.add("closed")
		}, 0))
	}
	p.Settle()
	require.NoError(t, victim.Close())
	p.Until(func() bool { return log.count("closed") == n })
	p.Settle()
	require.ElementsMatch(t, []string{"failed", "closed", "closed", "closed"}, log.get())
}

// onFailureNested: each of two endpoints is closed by the OnFailure of one of them.
func onFailureNested(t *testing.T, p *Pair) {
	a := unreachable(t)
	for range scaled(200) {
		var log events
		other := log.endpoint(t, p.A, a, "other")
		fail(t, other)
		e, err := p.A.NewEndpoint(a, ucp.EndpointConfig{OnFailure: func(e ucp.Endpoint, _ error) {
			assert.NoError(t, other.Close())
			assert.NoError(t, e.Close())
			log.add("one")
		}})
		require.NoError(t, err)
		require.ErrorIs(t, e.TagSend(nil, 1).Err(), ucp.ErrUnreachable)
		require.NoError(t, e.Close())
		p.Until(func() bool { return log.count("one") > 0 }) // a goroutine may be in it
		require.NoError(t, other.Close())
		p.A.Progress()
		require.ElementsMatch(t, []string{"one", "other"}, log.get())
	}
}

func onFailureEager(t *testing.T, p *Pair) {
	calls := 0
	_, err := p.A.NewEndpoint(unreachable(t), ucp.EndpointConfig{Eager: true, OnFailure: func(ucp.Endpoint, error) { calls++ }})
	require.ErrorIs(t, err, ucp.ErrUnreachable)
	p.Settle()
	require.NoError(t, p.Wait(p.AB.TagSend(nil, 1)))
	p.MustRecv(p.B.TagRecv(nil, 1, exact))
	require.NoError(t, p.Wait(p.A.Flush()))
	require.Zero(t, calls)
}
