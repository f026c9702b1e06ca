package ucptest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var waitCases = []Case{
	{"a context that ends as its operation ends well", waitEndsTogether},
	{"finish of an operation that ended before its context is looked at", finishEnded},
}

// endsTogether is a context that ends right after the operation that is waited for:
// a goroutine that looks at it finds both at their end.
type endsTogether struct {
	context.Context
	end func() // ends the operation
}

var closedChannel = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (c *endsTogether) Done() <-chan struct{} { return closedChannel }

func (c *endsTogether) Err() error {
	if c.end != nil {
		end := c.end
		c.end = nil
		end()
	}
	return context.Canceled
}

// together returns a context for waiting for r, which end has end well.
func (p *Pair) together(r interface{ Done() bool }, end func()) context.Context {
	return &endsTogether{context.Background(), func() {
		require.False(p.T, r.Done(), "nothing is waited for")
		end()
		p.Until(r.Done)
	}}
}

// waitEndsTogether: the outcome of the operation is what a wait returns, not the end of
// the context.
func waitEndsTogether(t *testing.T, p *Pair) {
	p.next(p.AB, p.B) // connected
	buf := make([]byte, 8)
	send := func() { require.NoError(t, p.AB.TagSendUint64(5, 1).Err()) }
	receive := func() { p.B.TagRecv(buf, 2, exact).Drop() }
	for name, wait := range map[string]func(ucp.Request, context.Context) error{
		"wait": ucp.Request.Wait, "finish": ucp.Request.Finish,
		"wait for all": func(r ucp.Request, ctx context.Context) error { return ucp.WaitAll(ctx, []ucp.Request{r, {}}, nil) },
	} {
		s := p.AB.TagSendSync([]byte("sync"), 2)
		require.NoError(t, wait(s, p.together(s, receive)), "%s: send", name)
		s = p.AB.TagSendWith(pattern(100, 1), 2, rndv)
		f := p.AB.Flush()
		require.NoError(t, wait(f, p.together(f, receive)), "%s: flush", name)
		require.NoError(t, p.Wait(s))
	}
	for name, wait := range map[string]func(ucp.RecvRequest, context.Context) (ucp.Message, error){
		"wait": ucp.RecvRequest.Wait, "finish": ucp.RecvRequest.Finish,
	} {
		r := p.B.TagRecv(buf, 1, exact)
		m, err := wait(r, p.together(r, send))
		require.NoError(t, err, "%s: receive", name)
		require.Equal(t, ucp.Message{Tag: 1, Len: 8}, m)
		_, err = r.Wait(p.deadline)
		require.ErrorIs(t, err, ucp.ErrStale, "the result was consumed")
	}
	r := p.B.TagRecv(buf, 1, exact)
	require.NoError(t, p.B.WaitUntil(p.together(r, send), r.Done))
	p.MustRecv(r)
}

// finishEnded: a context that has ended long ago takes nothing from an operation that
// has ended too, and the reason of a cancel names it.
func finishEnded(t *testing.T, p *Pair) {
	ctx, cancel := context.WithCancelCause(p.deadline)
	cancel(errCause)
	data, buf := make([]byte, 8), make([]byte, 8)
	r := p.B.TagRecv(buf, 1, exact)
	s := p.AB.TagSendSync(data, 1)
	p.Until(func() bool { return s.Done() && r.Done() })
	require.NoError(t, s.Finish(ctx))
	_, err := r.Finish(ctx)
	require.NoError(t, err)
	_, err = p.B.TagRecv(buf, 1, exact).Finish(ctx)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	require.ErrorIs(t, err, errCause)
	s = p.AB.TagSendSync(data, 1)
	err = s.Finish(ctx)
	require.ErrorIs(t, err, ucp.ErrCanceled)
	require.ErrorIs(t, err, errCause)
	dropAll(p, 1) // or it arrives later: nothing below has its tag

	// A handler cannot wait: the operation is canceled.
	ended := make(chan error, 1)
	require.NoError(t, p.B.HandleAM(9, func(*ucp.AM) {
		_, err := p.B.TagRecv(buf, 2, exact).Finish(context.Background())
		ended <- err
	}))
	require.NoError(t, p.Wait(p.AB.AMSend(9, nil, nil)))
	p.Until(func() bool { return len(ended) == 1 })
	err = <-ended
	require.ErrorIs(t, err, ucp.ErrCanceled)
	require.ErrorIs(t, err, ucp.ErrInvalid)
}
