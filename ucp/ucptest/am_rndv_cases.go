package ucptest

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var amRndvCases = []Case{
	{"82 eager and rendezvous forced, empty and large", amForced},
	{"83 rendezvous fetched, at once and later", amFetch},
	{"83 rendezvous fetched into less", amFetchShort},
	{"83 rendezvous refused with a reason", amRefuse},
	{"83 rendezvous not wanted", amUnwanted},
	{"83 rendezvous withdrawn by its sender", amWithdrawn},
	{"am: rendezvous whose sender is gone", amSenderGone},
	{"84 for an endpoint that was closed", amClosedEndpoint},
	{"am: a worker closes with messages kept and announced", amCloseWorker},
	{"am: the budget for kept messages", amBudget},
	{"am: many rendezvous in both directions", amBothWays},
	{"am: flush covers rendezvous", amFlush},
}

func amForced(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	for _, n := range []int{0, 1, 8, 5000, 64 << 10, 64<<10 + 1, scaled(3 << 20)} {
		data := pattern(n, 1)
		r := p.AB.AMSendWith(1, []byte("eager"), data, ucp.Opts{Flags: ucp.ForceEager})
		g := box.next(p)
		require.False(t, g.rndv, "%d bytes", n)
		require.Equal(t, string(data), g.data)
		require.Equal(t, string(data), string(g.kept.Bytes()))
		require.NoError(t, p.Wait(r))
		buf := make([]byte, n)
		m := p.MustRecv(g.kept.RecvInto(buf))
		require.Equal(t, n, m.Len, "a message kept with its data is received too")
		require.Equal(t, string(data), string(buf))

		r = p.AB.AMSendWith(1, []byte("rndv"), data, rndv)
		g = box.next(p)
		require.True(t, g.rndv)
		require.Equal(t, n, g.n)
		require.Empty(t, g.data)
		require.Nil(t, g.kept.Bytes())
		require.Equal(t, "rndv", string(g.kept.Header()))
		require.False(t, r.Done(), "it was not fetched")
		clear(buf)
		m = p.MustRecv(g.kept.RecvInto(buf))
		require.Equal(t, ucp.Message{Len: n}, m)
		require.Equal(t, string(data), string(buf))
		require.NoError(t, p.Wait(r))

		r = p.AB.AMSend(1, nil, data)
		g = box.next(p)
		require.Equal(t, n > 64<<10, g.rndv, "%d bytes", n)
		g.kept.Release()
		require.NoError(t, p.Wait(r))
	}
	both := ucp.Opts{Flags: ucp.ForceEager | ucp.ForceRendezvous}
	require.ErrorIs(t, p.Wait(p.AB.AMSendWith(1, nil, nil, both)), ucp.ErrInvalid)
	require.ErrorIs(t, p.Wait(p.AB.AMSendWith(1, nil, nil, ucp.Opts{Flags: 1 << 31})), ucp.ErrInvalid)
}

func amFetch(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	n := scaled(1<<20) + 3
	const messages = 8
	var sends [messages]ucp.Request
	for i := range sends {
		sends[i] = p.AB.AMSendWith(1, []byte{byte(i)}, pattern(n+i, byte(i)), rndv)
	}
	p.Until(func() bool { return box.len() == messages })
	p.Settle()
	for i := range sends {
		require.False(t, sends[i].Done())
	}
	// In the opposite order of their arrival.
	for i := messages - 1; i >= 0; i-- {
		g := box.got[i]
		require.Equal(t, string([]byte{byte(i)}), g.header)
		buf := make([]byte, n+i+1)
		r := g.kept.RecvInto(buf[1:])
		_, err := g.kept.RecvInto(nil).Wait(p.deadline)
		require.ErrorIs(t, err, ucp.ErrStale, "it was released by the first")
		require.Equal(t, n+i, p.MustRecv(r).Len)
		require.Equal(t, string(pattern(n+i, byte(i))), string(buf[1:]))
		require.NoError(t, p.Wait(sends[i]))
	}
}

func amFetchShort(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	data := pattern(50_000, 1)
	for _, room := range []int{0, 1, 10_000, 49_999} {
		buf := make([]byte, 50_000)
		r := p.AB.AMSendWith(1, nil, data, rndv)
		m, err := p.Recv(box.next(p).kept.RecvInto(buf[:room]))
		require.ErrorIs(t, err, ucp.ErrTruncated)
		require.Equal(t, len(data), m.Len)
		require.Equal(t, string(data[:room]), string(buf[:room]))
		require.Equal(t, make([]byte, len(buf)-room), buf[room:])
		require.NoError(t, p.Wait(r), "the sender does not learn of it")
	}
}

func amRefuse(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	for _, reason := range []error{errors.New("the disk is full"), errors.New(strings.Repeat("x", 1000)), nil} {
		r := p.AB.AMSendWith(1, []byte("head"), pattern(10_000, 1), rndv)
		g := box.next(p)
		g.kept.Refuse(reason)
		err := p.Wait(r)
		require.ErrorIs(t, err, ucp.ErrRejected)
		if reason != nil {
			require.ErrorContains(t, err, reason.Error()[:min(len(reason.Error()), 200)])
		}
		var op *ucp.OpError
		require.ErrorAs(t, err, &op)
		assert.Equal(t, "active message", op.Op)
		assert.NotEmpty(t, op.Peer)
		g.kept.Refuse(reason) // released: nothing happens
		require.Nil(t, g.kept.Header())
	}
	r := p.AB.AMSend(1, nil, []byte("eager"))
	box.next(p).kept.Refuse(errors.New("too late"))
	require.NoError(t, p.Wait(r), "its data was taken")
	// Refused in the handler.
	require.NoError(t, p.B.HandleAM(2, func(m *ucp.AM) { m.Retain().Refuse(errors.New("not today")) }))
	require.ErrorContains(t, p.Wait(p.AB.AMSendWith(2, nil, nil, rndv)), "not today")
}

func amUnwanted(t *testing.T, p *Pair) {
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) {}))
	require.NoError(t, p.Wait(p.AB.AMSendWith(1, nil, pattern(10_000, 1), rndv)), "not kept")
	var box amInbox
	box.handle(t, p.B, 1, true)
	r := p.AB.AMSendWith(1, nil, pattern(10_000, 1), rndv)
	g := box.next(p)
	require.False(t, r.Done())
	g.kept.Release()
	require.NoError(t, p.Wait(r), "released")
}

func amWithdrawn(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	for _, n := range []int{0, 100, 100_000} {
		r := p.AB.AMSendWith(1, nil, pattern(n, 1), rndv)
		g := box.next(p)
		r.Cancel()
		require.ErrorIs(t, p.Wait(r), ucp.ErrCanceled)
		p.next(p.AB, p.B) // comes after the news
		_, err := p.Recv(g.kept.RecvInto(make([]byte, n)))
		require.ErrorIs(t, err, ucp.ErrCanceled)
	}
	// Withdrawn and never fetched.
	r := p.AB.AMSendWith(1, nil, nil, rndv)
	g := box.next(p)
	r.Cancel()
	p.Settle()
	g.kept.Release()
	// The fetch is canceled.
	r = p.AB.AMSendWith(1, nil, pattern(16<<20, 1), rndv)
	fetch := box.next(p).kept.RecvInto(make([]byte, 16<<20))
	fetch.Cancel()
	_, err := p.Recv(fetch)
	if err != nil { // else it was faster
		require.ErrorIs(t, err, ucp.ErrCanceled)
		require.ErrorIs(t, p.Wait(r), ucp.ErrCanceled)
	}
}

func amSenderGone(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("the sender is the receiver")
	}
	var box amInbox
	box.handle(t, p.B, 1, true)
	c := p.NewWorker()
	e := p.Connect(c, p.B)
	r := e.AMSendWith(1, []byte("head"), pattern(100_000, 1), rndv)
	g := box.next(p)
	e.Abort(nil)
	require.ErrorIs(t, p.Wait(r), ucp.ErrCanceled)
	require.NoError(t, c.Close())
	p.Settle()
	require.Equal(t, "head", string(g.kept.Header()))
	_, err := p.Recv(g.kept.RecvInto(make([]byte, 100_000)))
	require.Error(t, err)
	require.True(t, errors.Is(err, ucp.ErrPeerFailed) || errors.Is(err, ucp.ErrCanceled), "%v", err)
}

func amClosedEndpoint(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, false)
	want := ucp.Opts{Flags: ucp.WantReply}
	if !p.Alone() {
		require.NoError(t, p.BA.Close(), "what comes in does not need it")
	}
	p.AB.AMSend(1, nil, []byte("still"))
	require.Equal(t, "still", box.next(p).data)

	p.AB.AMSendWith(1, nil, nil, want)
	first := box.next(p).from
	require.NoError(t, first.Close())
	require.ErrorIs(t, p.Wait(first.AMSend(1, nil, nil)), ucp.ErrClosed)
	p.AB.AMSendWith(1, nil, nil, want)
	second := box.next(p).from
	require.NotZero(t, second)
	require.NotEqual(t, first, second, "the program closed the first")
	require.NoError(t, p.Wait(second.AMSend(2, nil, nil)))

	require.NoError(t, p.AB.Close())
	require.ErrorIs(t, p.Wait(p.AB.AMSend(1, nil, nil)), ucp.ErrClosed)
	require.ErrorIs(t, p.Wait(p.AB.AMSend(1, []byte("head"), nil)), ucp.ErrClosed)
}

func amCloseWorker(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("the sender is the receiver")
	}
	var box amInbox
	c := p.NewWorker()
	box.handle(t, c, 1, true)
	e := p.Connect(p.A, c)
	send := e.AMSendWith(1, nil, pattern(1000, 1), rndv)
	e.AMSend(1, []byte("head"), []byte("data"))
	first, second := box.next(p), box.next(p)
	if second.rndv {
		first, second = second, first
	}
	require.NoError(t, c.Close())
	require.ErrorIs(t, p.Wait(send), ucp.ErrRejected)
	require.Equal(t, "head", string(second.kept.Header()))
	require.Equal(t, "data", string(second.kept.Bytes()))
	second.kept.Release()
	_, err := first.kept.RecvInto(make([]byte, 1000)).Wait(p.deadline)
	require.ErrorIs(t, err, ucp.ErrClosed)
	require.ErrorIs(t, c.HandleAM(1, nil), ucp.ErrClosed)
}

// What is kept beyond the budget makes senders announce; handlers do not notice.
func amBudget(t *testing.T, p *Pair) {
	if p.Alone() {
		t.Skip("the worker is made with a budget of its own")
	}
	b := p.newWorker(ucp.WorkerConfig{Mode: p.mode, UnexpectedBudget: 64 << 10})
	e := p.Connect(p.A, b)
	var box amInbox
	box.handle(t, b, 1, true)
	n := max(scaled(1000), 300) // more than one batch
	var sends []ucp.Request
	for i := range n {
		sends = append(sends, e.AMSend(1, []byte{byte(i)}, pattern(i*70%5000, byte(i))))
		if i%16 == 0 {
			p.Progress() // so that the receiver's word reaches the sender
		}
	}
	p.Until(func() bool { return box.len() == n })
	for _, r := range sends {
		require.NoError(t, p.Wait(r))
	}
	require.Positive(t, counter(b, "ucp.throttled"))
	for _, size := range []int{0, 100_000, 1<<20 + 1} {
		r := e.AMSendWith(1, []byte("big"), pattern(size, 5), ucp.Opts{Flags: ucp.ForceEager})
		p.Until(func() bool { return box.len() == n+1 })
		require.NoError(t, p.Wait(r))
		box.mu.Lock()
		g := box.got[n]
		box.got = box.got[:n]
		box.mu.Unlock()
		require.False(t, g.rndv, "%d bytes", size)
		require.Equal(t, string(pattern(size, 5)), g.data)
		g.kept.Release()
	}
	for range n {
		g := box.next(p)
		require.False(t, g.rndv)
		require.Equal(t, g.data, string(g.kept.Bytes()))
		g.kept.Release()
	}
	// The rendezvous of the senders are rejected.
	p.Until(func() bool {
		before := counter(p.A, "ucp.announced")
		e.AMSend(1, nil, []byte("x"))
		box.next(p).kept.Release()
		p.Settle()
		return counter(p.A, "ucp.announced") == before
	})
}

func amBothWays(t *testing.T, p *Pair) {
	var there, back amInbox
	there.handle(t, p.B, 1, true)
	back.handle(t, p.A, 2, true)
	size, count := scaled(200_000)+1, scaled(100)
	x, y := pattern(size, 1), pattern(size, 2)
	var sends []ucp.Request
	for range count {
		sends = append(sends, p.AB.AMSendWith(1, nil, x, rndv), p.BA.AMSendWith(2, nil, y, rndv))
	}
	type fetch struct {
		r    ucp.RecvRequest
		buf  []byte
		want []byte
	}
	var fetches []fetch
	for range count {
		f := fetch{buf: make([]byte, size), want: x}
		f.r = there.next(p).kept.RecvInto(f.buf)
		g := fetch{buf: make([]byte, size), want: y}
		g.r = back.next(p).kept.RecvInto(g.buf)
		fetches = append(fetches, f, g)
	}
	for _, f := range fetches {
		require.Equal(t, size, p.MustRecv(f.r).Len)
		require.Equal(t, string(f.want), string(f.buf))
	}
	for _, r := range sends {
		require.NoError(t, p.Wait(r))
	}
}

func amFlush(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	r := p.AB.AMSendWith(1, nil, pattern(100_000, 1), rndv)
	f := p.AB.Flush()
	g := box.next(p)
	p.Settle()
	require.False(t, f.Done(), "its data is still here")
	fetch := g.kept.RecvInto(make([]byte, 100_000))
	require.NoError(t, p.Wait(f))
	require.True(t, r.Done())
	p.MustRecv(fetch)
}
