package ucptest

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var amMoreCases = []Case{
	{"am: handlers post, make and close endpoints, change handlers", amBusyHandler},
	{"am: an endpoint closed in a handler still sends what was posted", amCloseInside},
	{"am: many goroutines ask, others answer", amManyGoroutines},
	{"am: a wait inside a handler is refused", amWaitInside},
	{"am: random messages against an oracle", amOracle},
}

func amBusyHandler(t *testing.T, p *Pair) {
	var box, late amInbox
	late.handle(t, p.A, 3, false)
	box.handle(t, p.A, 2, false)
	errs := make(chan error, 10)
	require.NoError(t, p.B.HandleAM(1, func(m *ucp.AM) {
		e, err := p.B.NewEndpoint(p.A.Address(), ucp.EndpointConfig{})
		errs <- err
		e.AMSend(2, m.Header, []byte("by a new endpoint"))
		e.TagSend([]byte("by tag"), 5)
		errs <- e.Close()
		errs <- p.B.HandleAM(1, nil)
		errs <- p.B.HandleAM(4, func(*ucp.AM) {
			p.BA.AMSend(3, nil, []byte("by the other handler"))
		})
	}))
	tag := p.A.TagRecv(make([]byte, 16), 5, exact)
	require.NoError(t, p.Wait(p.AB.AMSend(1, []byte("head"), nil)))
	g := box.next(p)
	require.Equal(t, "head", g.header)
	require.Equal(t, "by a new endpoint", g.data)
	require.Equal(t, 6, p.MustRecv(tag).Len)
	p.AB.AMSend(1, nil, nil) // removed
	p.AB.AMSend(4, nil, nil)
	require.Equal(t, "by the other handler", late.next(p).data)
	p.Settle()
	require.Zero(t, box.len())
	require.Len(t, errs, 4)
	for range 4 {
		require.NoError(t, <-errs)
	}
}

// amManyGoroutines has each message kept, answered and released by a goroutine
// of its own.
func amManyGoroutines(t *testing.T, p *Pair) {
	if p.mode != ucp.ThreadMulti {
		t.Skip("one goroutine at a time may post")
	}
	const askers = 8
	rounds := scaled(200)
	var busy sync.WaitGroup
	var handled atomic.Int32 // orders busy.Done before the check for the race detector, too
	require.NoError(t, p.B.HandleAM(1, func(m *ucp.AM) {
		from, k := m.From, m.Retain()
		busy.Go(func() {
			defer k.Release()
			assert.NoError(t, from.AMSend(2, k.Header(), k.Bytes()).Wait(p.deadline))
		})
		handled.Add(1)
	}))
	var answers [askers]chan string
	for i := range answers {
		answers[i] = make(chan string, 1)
	}
	require.NoError(t, p.A.HandleAM(2, func(m *ucp.AM) { answers[m.Header[0]] <- string(m.Data) }))
	var all sync.WaitGroup
	for i := range askers {
		all.Go(func() {
			for n := range rounds {
				data := pattern(n*37%6000, byte(i))
				r := p.AB.AMSendWith(1, []byte{byte(i)}, data, ucp.Opts{Flags: ucp.WantReply})
				select {
				case got := <-answers[i]:
					assert.Equal(t, string(data), got)
				case <-p.deadline.Done():
					assert.NoError(t, p.deadline.Err())
					return
				}
				assert.NoError(t, r.Wait(p.deadline))
			}
		})
	}
	all.Wait()
	p.Until(func() bool { return int(handled.Load()) == askers*rounds })
	busy.Wait()
}

func amCloseInside(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.A, 2, true)
	type posted struct {
		e      ucp.Endpoint
		r      ucp.Request
		closed error
	}
	out := make(chan posted, 1)
	data := pattern(100_000, 1)
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) {
		e, err := p.B.NewEndpoint(p.A.Address(), ucp.EndpointConfig{})
		if err != nil {
			out <- posted{closed: err}
			return
		}
		r := e.AMSendWith(2, nil, data, rndv)
		out <- posted{e, r, e.Close()}
	}))
	p.AB.AMSend(1, nil, nil)
	g := box.next(p)
	o := <-out
	require.NoError(t, o.closed)
	require.False(t, o.r.Done(), "its data is still wanted")
	buf := make([]byte, len(data))
	p.MustRecv(g.kept.RecvInto(buf))
	require.Equal(t, string(data), string(buf))
	require.NoError(t, p.Wait(o.r))
	p.Until(func() bool { return errors.Is(o.e.Info().Err, ucp.ErrClosed) })
}

func amWaitInside(t *testing.T, p *Pair) {
	type outcome struct {
		recv, send, until, run, closed, all error
		progress                            int
	}
	got := make(chan outcome, 1)
	buf := make([]byte, 8)
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) {
		var o outcome
		r := p.B.TagRecv(buf, 77, exact)
		_, o.recv = r.Wait(p.deadline)
		r.Cancel()
		r.Drop()
		s := p.BA.AMSendWith(9, nil, nil, rndv)
		o.send = s.Wait(p.deadline)
		s.Cancel()
		o.until = p.B.WaitUntil(p.deadline, func() bool { return false })
		o.run = p.B.Run(p.deadline)
		o.closed = p.B.Close()
		o.all = p.Context.Close()
		o.progress = p.B.Progress()
		got <- o
	}))
	p.AB.AMSend(1, nil, nil)
	p.Until(func() bool { return len(got) == 1 })
	o := <-got
	for _, err := range []error{o.recv, o.send, o.until, o.run, o.closed, o.all} {
		require.ErrorIs(t, err, ucp.ErrInvalid)
		require.ErrorContains(t, err, "handler")
	}
	require.Zero(t, o.progress)
	p.Settle()
	p.AB.TagSendUint64(1, 5)
	p.MustRecv(p.B.TagRecv(buf, 5, exact)) // it goes on as before
}

// amOracle sends at random and does at random with what comes what a handler
// may; the data of each message tells what it must be.
func amOracle(t *testing.T, p *Pair) {
	r := rand.New(rand.NewPCG(7, 8))
	const ids = 3
	var boxes [ids]amInbox
	for i := range boxes {
		boxes[i].handle(t, p.B, ucp.AMID(i*300), true)
	}
	type sent struct {
		r            ucp.Request
		header, data string
		id           ucp.AMID
	}
	out := map[string]sent{}
	rounds := scaled(2000)
	steps, refused := 0, 0
	take := func(b *amInbox) {
		k := r.IntN(len(b.got))
		g := b.got[k]
		b.got = append(b.got[:k], b.got[k+1:]...)
		s, ok := out[g.header]
		require.True(t, ok, "message %q", g.header)
		delete(out, g.header)
		require.Equal(t, s.id, g.id)
		require.Equal(t, s.header, string(g.kept.Header()))
		require.Equal(t, len(s.data), g.n)
		if !g.rndv {
			require.Equal(t, s.data, string(g.kept.Bytes()))
			g.kept.Release()
			require.NoError(t, p.Wait(s.r))
			return
		}
		switch r.IntN(4) {
		case 0:
			g.kept.Refuse(nil)
			refused++
			require.ErrorIs(t, p.Wait(s.r), ucp.ErrRejected)
		case 1:
			g.kept.Release()
			require.NoError(t, p.Wait(s.r))
		default:
			buf := make([]byte, g.n)
			require.Equal(t, g.n, p.MustRecv(g.kept.RecvInto(buf)).Len)
			require.Equal(t, s.data, string(buf))
			require.NoError(t, p.Wait(s.r))
		}
	}
	for n := 0; n < rounds || len(out) > 0; steps++ {
		if n < rounds && len(out) < 60 && r.IntN(3) > 0 {
			header := make([]byte, 8+r.IntN(100))
			for i := range 8 {
				header[i] = byte(n >> (8 * i))
			}
			size := []int{0, 8, 40, 48, 1000, 4000, 30_000, 70_000, 200_000}[r.IntN(9)]
			s := sent{id: ucp.AMID(300 * r.IntN(ids)), header: string(header), data: string(pattern(size+r.IntN(8), byte(n)))}
			f := []ucp.Flags{0, 0, 0, ucp.ForceEager, ucp.ForceRendezvous, ucp.WantReply}[r.IntN(6)]
			s.r = p.AB.AMSendWith(s.id, header, []byte(s.data), ucp.Opts{Flags: f})
			clear(header)
			out[s.header] = s
			n++
			continue
		}
		p.Progress()
		for i := range boxes {
			boxes[i].mu.Lock()
			some := len(boxes[i].got) > 0
			boxes[i].mu.Unlock()
			if some && r.IntN(2) == 0 {
				boxes[i].takeOne(take)
			}
		}
		require.NoError(t, p.deadline.Err(), "%d messages are missing", len(out))
	}
	require.Positive(t, refused)
	require.NoError(t, p.Wait(p.AB.Flush()))
}

// takeOne lets f have one message, of several chosen by it.
func (b *amInbox) takeOne(f func(*amInbox)) {
	b.mu.Lock()
	own := amInbox{got: b.got}
	b.got = nil
	b.mu.Unlock()
	f(&own)
	b.mu.Lock()
	b.got = append(own.got, b.got...)
	b.mu.Unlock()
}
