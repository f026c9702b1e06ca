package ucptest

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

// A request holds its buffer until it ends, and not longer: at once where it failed
// or was canceled, within a second of driving where it ended well.
var bufferCases = []Case{
	{"buffers of requests that fail or are canceled", buffersOfFailed},
	{"buffers of requests that end well", buffersOfDone},
	{"buffers of requests that end well while their worker sleeps", buffersAsleep},
	{"buffers of many sends that are not received", buffersOfMany},
}

// buffers are what the case gave to requests, as long as the heap holds them.
type buffers struct {
	held []weak.Pointer[byte]
	// tag is that of the messages: what an ending has given up may come later.
	tag ucp.Tag
}

// make returns a buffer of n bytes. Objects below 16 bytes share a block of the heap,
// which any of them holds: the buffer has a block of its own.
//
//go:noinline
func (b *buffers) make(n int) []byte {
	p := append(make([]byte, 0, max(n, 16)), pattern(n, 3)...)
	b.held = append(b.held, weak.Make(&p[n-1]))
	return p
}

// left collects garbage and returns how many buffers are still held.
func (b *buffers) left() int {
	runtime.GC()
	b.held = slices.DeleteFunc(b.held, func(p weak.Pointer[byte]) bool { return p.Value() == nil })
	return len(b.held)
}

// ending is a way in which requests end.
type ending struct {
	name string
	// run ends the requests that it makes with buffers of b. It reads the outcome of
	// none of them.
	run func(p *Pair, b *buffers)
}

// bufferSizes are those of the forms of messages: short, by copy, in fragments,
// by rendezvous.
var bufferSizes = []int{100, 3000, 50_000, 300_000}

// ended drives until all of rs have ended.
func (p *Pair) ended(rs ...ucp.Request) {
	p.T.Helper()
	for _, r := range rs {
		p.Until(r.Done)
	}
}

// sendAll starts a send of every form and length by e.
func (p *Pair) sendAll(b *buffers, e ucp.Endpoint, tag ucp.Tag) (rs []ucp.Request) {
	for _, n := range bufferSizes {
		rs = append(rs, e.TagSend(b.make(n), tag), e.TagSendSync(b.make(n), tag),
			e.TagSendWith(b.make(n), tag, rndv), e.TagSendV([][]byte{b.make(n), b.make(n)}, tag),
			e.AMSend(1, []byte("header"), b.make(n)), e.AMSendWith(1, nil, b.make(n), rndv))
	}
	return append(rs, e.TagSendInline(b.make(100), tag))
}

// recvAll posts receives for the messages of sendAll and the handler of the others.
func (p *Pair) recvAll(b *buffers, w *ucp.Worker, tag ucp.Tag) (rs []ucp.Request) {
	for _, n := range bufferSizes {
		for range 3 {
			rs = append(rs, w.TagRecv(b.make(n), tag, exact).Request)
		}
		rs = append(rs, w.TagRecv(b.make(2*n), tag, exact).Request)
	}
	return append(rs, w.TagRecv(b.make(100), tag, exact).Request)
}

// idle makes a worker that is not progressed and an endpoint of A to it.
func (p *Pair) idle() (*ucp.Worker, ucp.Endpoint) {
	w := p.undriven()
	return w, p.Connect(p.A, w)
}

var failedEndings = []ending{
	{"receives canceled", func(p *Pair, b *buffers) {
		for _, r := range p.recvAll(b, p.B, b.tag) {
			r.Cancel()
		}
	}},
	{"receives given up", func(p *Pair, b *buffers) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err := p.B.TagRecv(b.make(5000), b.tag, exact).Finish(ctx)
		require.ErrorIs(p.T, err, ucp.ErrCanceled)
	}},
	{"sends canceled", func(p *Pair, b *buffers) {
		if p.Alone() {
			return
		}
		_, e := p.idle()
		rs := p.sendAll(b, e, b.tag)
		for range 300 { // more than there is room for
			rs = append(rs, e.TagSend(b.make(3000), b.tag))
		}
		for _, r := range rs {
			r.Cancel()
		}
		p.ended(rs...)
	}},
	{"sends canceled that the receiver knows of", func(p *Pair, b *buffers) {
		rs := p.sendAll(b, p.AB, b.tag)
		p.Settle()
		for _, r := range rs {
			r.Cancel()
		}
		p.ended(rs...)
		dropAll(p, b.tag)
	}},
	{"sends given up", func(p *Pair, b *buffers) {
		for _, n := range bufferSizes {
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			_ = p.AB.TagSendSync(b.make(n), b.tag).Finish(ctx) // canceled, or there was time enough
			cancel()
		}
		dropAll(p, b.tag)
	}},
	{"receives whose sender gives up", func(p *Pair, b *buffers) {
		r := p.B.TagRecv(b.make(1<<20), b.tag, exact)
		s := p.AB.TagSendWith(b.make(1<<20), b.tag, rndv)
		s.Cancel()
		p.ended(s)
		r.Cancel()
		p.ended(r.Request)
		dropAll(p, b.tag)
	}},
	{"receives cut", func(p *Pair, b *buffers) {
		var rs []ucp.Request
		for _, n := range bufferSizes {
			for _, o := range []ucp.Opts{{}, rndv} {
				rs = append(rs, p.AB.TagSendWith(b.make(n), b.tag, o), p.B.TagRecv(b.make(n-1), b.tag, exact).Request)
			}
		}
		p.ended(rs...)
	}},
	{"unexpected messages cut", func(p *Pair, b *buffers) {
		var rs []ucp.Request
		for _, n := range bufferSizes {
			rs = append(rs, p.AB.TagSend(b.make(n), b.tag))
		}
		p.Settle()
		for _, n := range bufferSizes {
			rs = append(rs, p.B.TagRecv(b.make(n-1), b.tag, exact).Request)
		}
		p.ended(rs...)
	}},
	{"active messages without a handler", func(p *Pair, b *buffers) {
		for _, n := range bufferSizes {
			p.ended(p.AB.AMSendWith(77, []byte("header"), b.make(n), rndv))
		}
	}},
	{"active messages refused", func(p *Pair, b *buffers) {
		var box amInbox
		box.handle(p.T, p.B, 2, true)
		for _, n := range bufferSizes {
			r := p.AB.AMSendWith(2, nil, b.make(n), rndv)
			box.next(p).kept.Refuse(errors.New("no"))
			p.ended(r)
		}
	}},
	{"active messages fetched into less", func(p *Pair, b *buffers) {
		var box amInbox
		box.handle(p.T, p.B, 2, true)
		for _, n := range bufferSizes {
			r := p.AB.AMSendWith(2, nil, b.make(n), rndv)
			p.ended(r, box.next(p).kept.RecvInto(b.make(n-1)).Request)
		}
	}},
	{"refused at the call", func(p *Pair, b *buffers) {
		_, k := p.lend(4096)
		p.ended(
			p.AB.TagSendInline(b.make(100_000), b.tag), p.AB.TagSendV(slices.Repeat([][]byte{b.make(100)}, 1025), b.tag),
			p.AB.AMSend(1, b.make(100_000), b.make(100)), p.AB.AMSendWith(1, nil, b.make(100), ucp.Opts{Flags: 1 << 31}),
			k.Put(b.make(5000), 0), k.Get(b.make(5000), 0), k.PutInline(b.make(5000), 0),
		)
	}},
	{"receives tied to an endpoint that closes", func(p *Pair, b *buffers) {
		e := p.connectWorker(p.A, p.B)
		r := p.A.TagRecv(b.make(5000), b.tag, exact).Tie(e)
		require.NoError(p.T, p.Close(p.A, e))
		p.ended(r.Request)
	}},
	{"the endpoint is aborted", func(p *Pair, b *buffers) {
		if p.Alone() {
			return
		}
		w, e := p.idle()
		_, put, get := p.fill(b, w, e)
		e.Abort(nil)
		p.Settle()
		p.ended(append(put, get...)...)
	}},
	{"the peer closes", func(p *Pair, b *buffers) {
		if p.Alone() {
			return
		}
		w, e := p.idle()
		rs, put, get := p.fill(b, w, e)
		rs = append(rs, p.A.TagRecv(b.make(5000), 77, exact).Tie(e).Request)
		p.Settle()
		require.NoError(p.T, w.Close())
		p.ended(slices.Concat(rs, put, get)...)
		p.ended(e.TagSend(b.make(3000), b.tag), e.AMSend(1, nil, b.make(3000))) // refused by now
	}},
	{"the endpoint closes", func(p *Pair, b *buffers) {
		e := p.connectWorker(p.A, p.B)
		require.NoError(p.T, p.B.HandleAM(3, nil))
		rs := []ucp.Request{p.A.TagRecv(b.make(5000), 77, exact).Tie(e).Request}
		for _, n := range bufferSizes {
			rs = append(rs, e.TagSend(b.make(min(n, 3000)), b.tag), e.AMSend(3, nil, b.make(min(n, 3000))))
		}
		require.NoError(p.T, p.Close(p.A, e))
		p.ended(rs...)
		p.ended(e.TagSend(b.make(3000), b.tag), e.TagSendV([][]byte{b.make(3000)}, b.tag), e.AMSend(1, nil, b.make(3000)))
		dropAll(p, b.tag)
	}},
	{"their worker closes", func(p *Pair, b *buffers) {
		if p.Alone() {
			return
		}
		x, err := p.Factory.open(ucp.Config{CloseTimeout: 50 * time.Millisecond})
		require.NoError(p.T, err)
		w, err := x.NewWorker(ucp.WorkerConfig{Mode: p.mode})
		require.NoError(p.T, err)
		peer := p.undriven()
		sends, puts, gets := p.fill(b, peer, p.Connect(w, peer))
		receives := p.recvAll(b, w, b.tag)
		require.ErrorIs(p.T, x.Close(), ucp.ErrTimeout) // the peer matches nothing
		for _, r := range slices.Concat(sends, puts, gets, receives) {
			require.True(p.T, r.Done(), r)
		}
		p.ended(w.TagRecv(b.make(3000), b.tag, exact).Request)
	}},
	{"the owner closes the memory", func(p *Pair, b *buffers) {
		for _, n := range bufferSizes {
			e := p.Connect(p.A, p.B)
			m, err := p.Context.Register(make([]byte, 300_000), ucp.MemConfig{})
			require.NoError(p.T, err)
			k, err := e.UnpackKey(m.Key())
			require.NoError(p.T, err)
			require.NoError(p.T, m.Close())
			p.ended(k.Put(b.make(n), 0))
			p.ended(k.Get(b.make(n), 0))
			p.ended(e.Flush())
			e.Abort(nil)
		}
	}},
	{"callbacks and receives that are not read", func(p *Pair, b *buffers) {
		told := 0
		for range 3 {
			r := p.B.TagRecv(b.make(5000), b.tag, exact)
			require.True(p.T, r.Notify(func(ucp.Completion) { told++ }, 0))
			r.Cancel()
			d := p.B.TagRecv(b.make(5000), b.tag, exact)
			d.Drop()
			d.Cancel()
		}
	}},
}

// fill starts sends, puts and gets of every length by e, whose peer w does nothing.
func (p *Pair) fill(b *buffers, w *ucp.Worker, e ucp.Endpoint) (sends, puts, gets []ucp.Request) {
	m, err := p.Context.Register(make([]byte, 300_000), ucp.MemConfig{})
	require.NoError(p.T, err)
	k, err := e.UnpackKey(m.Key())
	require.NoError(p.T, err)
	for _, n := range bufferSizes {
		puts, gets = append(puts, k.Put(b.make(n), 0)), append(gets, k.Get(b.make(n), 0))
	}
	return p.sendAll(b, e, b.tag), puts, gets
}

func buffersOfFailed(t *testing.T, p *Pair) {
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) {}))
	p.next(p.AB, p.B) // connected
	for i, e := range failedEndings {
		t.Run(e.name, func(t *testing.T) {
			b := buffers{tag: ucp.Tag(i + 1)}
			e.run(p, &b)
			b.gone(t, 100*time.Millisecond, time.Sleep) // no goroutine drives
		})
	}
}

// gone requires that all buffers are given back within that time, of which wait passes a
// part, or within twenty looks: on a busy machine a collection alone may take as long.
func (b *buffers) gone(t *testing.T, within time.Duration, wait func(time.Duration)) {
	t.Helper()
	n, start := len(b.held), ucs.Now()
	for looks := 0; b.left() > 0; looks++ {
		require.True(t, looks < 20 || ucs.Now().Sub(start) < within, "%d of %d buffers are held", len(b.held), n)
		wait(within / 20)
	}
}

// drive drives for that long.
func (p *Pair) drive(d time.Duration) {
	for end := ucs.Now().Add(d); ucs.Now() < end; {
		p.Progress()
	}
}

var doneEndings = []ending{
	{"messages that were waited for", func(p *Pair, b *buffers) {
		p.ended(append(p.recvAll(b, p.B, b.tag), p.sendAll(b, p.AB, b.tag)...)...)
	}},
	{"unexpected messages", func(p *Pair, b *buffers) {
		rs := p.sendAll(b, p.AB, b.tag)
		p.Settle()
		p.ended(append(p.recvAll(b, p.B, b.tag), rs...)...)
	}},
	{"messages that were read", func(p *Pair, b *buffers) {
		for _, n := range bufferSizes {
			r := p.B.TagRecv(b.make(n), b.tag, exact)
			p.ended(p.AB.TagSend(b.make(n), b.tag))
			p.MustRecv(r)
		}
	}},
	{"messages that were taken", func(p *Pair, b *buffers) {
		rs := []ucp.Request{p.AB.TagSend(b.make(3000), b.tag), p.AB.TagSend(b.make(300_000), b.tag)}
		for range rs {
			p.probe(b.tag, exact)
			k, ok := p.B.TagMprobe(b.tag, exact)
			require.True(p.T, ok)
			p.ended(k.Recv(b.make(k.Len)).Request)
		}
		p.ended(rs...)
	}},
	{"active messages fetched", func(p *Pair, b *buffers) {
		var box amInbox
		box.handle(p.T, p.B, 2, true)
		for _, n := range bufferSizes {
			for _, o := range []ucp.Opts{{}, rndv} {
				r := p.AB.AMSendWith(2, []byte("header"), b.make(n), o)
				p.ended(box.next(p).kept.RecvInto(b.make(n)).Request, r)
			}
		}
	}},
	{"active messages not wanted", func(p *Pair, b *buffers) {
		for _, n := range bufferSizes {
			p.ended(p.AB.AMSendWith(1, nil, b.make(n), rndv))
		}
	}},
	{"puts and gets", func(p *Pair, b *buffers) {
		for _, m := range p.memories(300_000) {
			k := p.unpack(m)
			for _, n := range bufferSizes {
				p.ended(k.Put(b.make(n), 0), k.Get(b.make(n), 0), k.PutInline(b.make(8), 0))
			}
			p.ended(p.AB.Flush())
			require.NoError(p.T, k.Close())
			require.NoError(p.T, m.Close())
		}
	}},
	{"receives that are not read", func(p *Pair, b *buffers) {
		told := 0
		for range 3 {
			r := p.B.TagRecv(b.make(5000), b.tag, exact)
			require.True(p.T, r.Notify(func(ucp.Completion) { told++ }, 0))
			p.B.TagRecv(b.make(5000), b.tag, exact).Drop()
			p.ended(p.AB.TagSend(b.make(5000), b.tag), p.AB.TagSendSync(b.make(5000), b.tag))
		}
	}},
}

func buffersOfDone(t *testing.T, p *Pair) {
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) {}))
	p.next(p.AB, p.B) // connected
	var rs []ucp.RecvRequest
	for range 20_000 { // and many requests are under way
		rs = append(rs, p.B.TagRecv(make([]byte, 8), 1000, exact))
	}
	for i, e := range doneEndings {
		t.Run(e.name, func(t *testing.T) {
			b := buffers{tag: ucp.Tag(i + 1)}
			e.run(p, &b)
			b.gone(t, slack*time.Second, p.drive)
		})
	}
	for _, r := range rs {
		r.Cancel()
		r.Drop()
	}
}

// slack is what a busy machine adds to times.
const slack = 6

// buffersAsleep: a worker that sleeps counts as driven.
func buffersAsleep(t *testing.T, p *Pair) {
	require.NoError(t, p.B.HandleAM(1, func(*ucp.AM) {}))
	p.next(p.AB, p.B)
	var b buffers
	for _, e := range doneEndings {
		e.run(p, &b)
	}
	b.gone(t, slack*time.Second, func(d time.Duration) {
		for _, w := range p.workers {
			ctx, cancel := context.WithTimeout(context.Background(), d/2)
			require.ErrorIs(t, w.Run(ctx), context.DeadlineExceeded)
			cancel()
		}
	})
}

// buffersOfMany: a program that gives sends up and keeps their requests holds none of
// their memory.
func buffersOfMany(t *testing.T, p *Pair) {
	p.next(p.AB, p.B)
	const n, size = 100, 1 << 20
	before := heap()
	rs := make([]ucp.Request, n)
	for i := range rs {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		rs[i] = p.AB.TagSendWith(make([]byte, size), 1, rndv)
		require.ErrorIs(t, rs[i].Finish(ctx), ucp.ErrCanceled)
		cancel()
	}
	require.Less(t, heap()-before, int64(n*size/10))
	runtime.KeepAlive(rs)
	dropAll(p, 1)
}

// heap is how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
