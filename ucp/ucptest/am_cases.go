package ucptest

import (
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

var amCases = []Case{
	{"76 set, replace and remove handlers", amHandlers},
	{"77 unknown id: dropped and counted", amUnknown},
	{"78 longest header, over-long header, header only, nothing", amHeaders},
	{"79 kept and released later, also after its sender is gone", amKeep},
	{"79 released twice, from any goroutine", amReleaseTwice},
	{"80 fragments with a header and a reply endpoint", amFragments},
	{"81 the header is the caller's at return", amHeaderReused},
	{"am: messages of one endpoint in order", amOrder},
	{"am: sizes and headers", amSizes},
	{"am: request and answer by turns", amPingPong},
}

// amGot is an active message as it arrived.
type amGot struct {
	id     ucp.AMID
	header string
	data   string
	from   ucp.Endpoint
	rndv   bool
	n      int
	kept   ucp.RetainedAM
}

// amInbox collects what arrives.
type amInbox struct {
	mu  sync.Mutex
	got []amGot
}

// handle has the worker's messages of id collected, and kept with keep.
func (b *amInbox) handle(t *testing.T, w *ucp.Worker, id ucp.AMID, keep bool) {
	t.Helper()
	require.NoError(t, w.HandleAM(id, func(m *ucp.AM) {
		g := amGot{id: m.ID, header: string(m.Header), data: string(m.Data), from: m.From, rndv: m.Rendezvous, n: m.Len}
		if keep {
			g.kept = m.Retain()
		}
		b.mu.Lock()
		b.got = append(b.got, g)
		b.mu.Unlock()
	}))
}

func (b *amInbox) len() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// next waits for one message and removes it.
func (b *amInbox) next(p *Pair) amGot {
	p.T.Helper()
	p.Until(func() bool { return b.len() > 0 })
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.got[0]
	b.got = b.got[1:]
	return g
}

// counter reads a counter of w.
func counter(w *ucp.Worker, name string) uint64 {
	for _, c := range w.Stats().Snapshot() {
		if c.Name == name {
			return c.Value
		}
	}
	return 0
}

func amHandlers(t *testing.T, p *Pair) {
	ids := []ucp.AMID{300, 0, 65535, 255, 256, 7}
	var box amInbox
	for _, id := range ids {
		box.handle(t, p.B, id, false)
	}
	for _, id := range ids {
		require.NoError(t, p.Wait(p.AB.AMSend(id, nil, []byte{byte(id)})))
		g := box.next(p)
		assert.Equal(t, id, g.id)
		assert.Equal(t, string([]byte{byte(id)}), g.data)
		for _, r := range []ucp.Request{
			g.from.TagSend(nil, 1), g.from.TagSendUint64(1, 1), g.from.TagSendInline(nil, 1), g.from.TagSendSync(nil, 1),
			g.from.AMSend(1, nil, nil), g.from.Flush(),
		} {
			require.ErrorIs(t, r.Err(), ucp.ErrClosed, "no answer was wished")
		}
		require.NoError(t, g.from.Close())
		assert.False(t, g.rndv)
	}
	var other amInbox
	other.handle(t, p.B, 7, false)
	p.AB.AMSend(7, nil, []byte("second"))
	assert.Equal(t, "second", other.next(p).data)
	assert.Zero(t, box.len(), "it was replaced")

	require.NoError(t, p.B.HandleAM(7, nil))
	require.NoError(t, p.B.HandleAM(7, nil), "twice")
	require.NoError(t, p.B.HandleAM(9999, nil), "never set")
	p.AB.AMSend(7, nil, []byte("third"))
	p.AB.AMSend(300, nil, []byte("end"))
	assert.Equal(t, "end", box.next(p).data)
	assert.Zero(t, other.len(), "it was removed")
}

func amUnknown(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, false)
	big := pattern(20_000, 1)
	before := counter(p.B, "ucp.unhandled")
	for range 3 {
		require.NoError(t, p.Wait(p.AB.AMSend(2, nil, []byte("unhandled"))))
		require.NoError(t, p.Wait(p.AB.AMSend(2, []byte("head"), big)))
		r := p.AB.AMSendWith(2, []byte("head"), big, ucp.Opts{Flags: ucp.ForceRendezvous})
		err := p.Wait(r)
		require.ErrorIs(t, err, ucp.ErrRejected)
		require.ErrorContains(t, err, "no handler")
	}
	require.NoError(t, p.Wait(p.AB.AMSend(1, nil, []byte("known"))))
	assert.Equal(t, "known", box.next(p).data)
	assert.Equal(t, before+9, counter(p.B, "ucp.unhandled"))
}

func amHeaders(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	for _, n := range []int{0, 1, 8, 40, 47, 48, 49, 100, ucp.MaxAMHeader} {
		for _, size := range []int{0, 1, 8, 40, 1000, 10_000, 100_000} {
			head, data := pattern(n, 1), pattern(size, 2)
			r := p.AB.AMSend(1, head, data)
			g := box.next(p)
			require.Equal(t, string(head), g.header, "header of %d, %d bytes", n, size)
			require.Equal(t, string(head), string(g.kept.Header()))
			require.Equal(t, size, g.n)
			require.Equal(t, size, g.kept.Len())
			if g.rndv {
				require.Empty(t, g.data)
				buf := make([]byte, size)
				require.Equal(t, size, p.MustRecv(g.kept.RecvInto(buf)).Len)
				require.Equal(t, string(data), string(buf))
			} else {
				require.Equal(t, string(data), g.data)
				require.Equal(t, string(data), string(g.kept.Bytes()))
				g.kept.Release()
			}
			require.NoError(t, p.Wait(r))
		}
	}
	err := p.Wait(p.AB.AMSend(1, make([]byte, ucp.MaxAMHeader+1), nil))
	require.ErrorIs(t, err, ucp.ErrTooLong)
	p.Settle()
	require.Zero(t, box.len())
}

func amKeep(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	sender, e := p.A, p.AB
	if !p.Alone() {
		sender = p.NewWorker()
		e = p.Connect(sender, p.B)
	}
	sizes := []int{0, 1, 100, 3000, 50_000}
	for _, n := range sizes {
		require.NoError(t, p.Wait(e.AMSend(1, []byte("head"), pattern(n, byte(n)))))
	}
	p.Until(func() bool { return box.len() == len(sizes) })
	require.NoError(t, e.Close())
	if !p.Alone() {
		require.NoError(t, sender.Close())
	}
	p.Settle()
	for _, n := range sizes {
		g := box.next(p)
		require.Equal(t, "head", string(g.kept.Header()))
		require.Equal(t, string(pattern(n, byte(n))), string(g.kept.Bytes()))
		g.kept.Release()
		require.Nil(t, g.kept.Bytes())
		require.Nil(t, g.kept.Header())
	}
}

func amReleaseTwice(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	const n = 50
	for range n {
		p.AB.AMSend(1, nil, []byte("kept"))
	}
	var done sync.WaitGroup
	for range n {
		g := box.next(p)
		for range 2 {
			done.Go(g.kept.Release)
		}
	}
	done.Wait()
	p.Until(func() bool { return counter(p.B, "ucp.released_twice") == n })
	ucp.RetainedAM{}.Release() // nothing
	assert.Nil(t, ucp.RetainedAM{}.Bytes())
}

func amFragments(t *testing.T, p *Pair) {
	var there, back amInbox
	there.handle(t, p.B, 1, true)
	back.handle(t, p.A, 2, true)
	for _, n := range []int{0, 8, 3000, 4096, 20_000, 60_000, scaled(1 << 20)} {
		for _, h := range []int{0, 8, 300} {
			head, data := pattern(h, 7), pattern(n, 9)
			r := p.AB.AMSendWith(1, head, data, ucp.Opts{Flags: ucp.WantReply | ucp.ForceEager})
			g := there.next(p)
			require.NoError(t, p.Wait(r))
			require.Equal(t, string(head), g.header)
			require.Equal(t, string(data), g.data)
			require.NotZero(t, g.from)
			answer := g.from.AMSendWith(2, g.kept.Header(), g.kept.Bytes(), ucp.Opts{Flags: ucp.ForceEager})
			b := back.next(p)
			require.NoError(t, p.Wait(answer))
			require.Equal(t, string(head), b.header)
			require.Equal(t, string(data), b.data)
			b.kept.Release()
			g.kept.Release()
		}
	}
	p.AB.AMSendWith(1, nil, nil, ucp.Opts{Flags: ucp.WantReply})
	p.AB.AMSendWith(1, nil, nil, ucp.Opts{Flags: ucp.WantReply | ucp.ForceRendezvous})
	require.Equal(t, there.next(p).from, there.next(p).from, "one per peer")
}

func amHeaderReused(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, true)
	n := scaled(3000) // more than the transport holds
	head, data := make([]byte, 64), pattern(5000, 3)
	for i := range n {
		binary.LittleEndian.PutUint64(head, uint64(i))
		var d []byte
		if i%10 == 0 {
			d = data
		}
		var o ucp.Opts
		if i%7 == 0 {
			o.Flags = ucp.ForceRendezvous
		}
		p.AB.AMSendWith(1, head, d, o)
		clear(head)
	}
	seen := make([]bool, n)
	for range n {
		g := box.next(p)
		i := binary.LittleEndian.Uint64([]byte(g.header))
		require.False(t, seen[i])
		seen[i] = true
		g.kept.Release()
	}
}

func amOrder(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, false)
	n := scaled(5000)
	big := make([]byte, 10_000)
	for i := range n {
		head := binary.LittleEndian.AppendUint64(nil, uint64(i))
		switch i % 50 {
		case 0:
			p.AB.AMSend(1, head, big)
		case 1, 2, 3, 4:
			p.AB.AMSend(1, head, nil)
		default:
			p.AB.AMSend(1, nil, head)
		}
	}
	for i := range n {
		g := box.next(p)
		if g.header == "" {
			g.header = g.data
		}
		require.Equal(t, uint64(i), binary.LittleEndian.Uint64([]byte(g.header)))
	}
}

func amSizes(t *testing.T, p *Pair) {
	var box amInbox
	box.handle(t, p.B, 1, false)
	for n := range scaled(300) {
		want := pattern(n, byte(n))
		r := p.AB.AMSend(1, want[:n/3], want[n/3:])
		g := box.next(p)
		require.Equal(t, string(want), g.header+g.data)
		require.NoError(t, p.Wait(r))
	}
}

func amPingPong(t *testing.T, p *Pair) {
	rounds := scaled(300)
	done := make(chan struct{})
	require.NoError(t, p.B.HandleAM(1, func(m *ucp.AM) {
		m.From.AMSend(2, m.Header, append([]byte(nil), m.Data...))
	}))
	var n int
	require.NoError(t, p.A.HandleAM(2, func(m *ucp.AM) {
		if n++; n == rounds {
			close(done)
			return
		}
		p.AB.AMSendWith(1, m.Header, m.Data, ucp.Opts{Flags: ucp.WantReply})
	}))
	p.AB.AMSendWith(1, []byte("h"), []byte("d"), ucp.Opts{Flags: ucp.WantReply})
	p.Until(func() bool {
		select {
		case <-done:
			return true
		default:
			return false
		}
	})
}
