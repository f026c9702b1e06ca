package ucp

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// swPair is two workers of a program over transports of the software RNIC, or
// beside it. No goroutine drives either.
type swPair struct {
	t    *testing.T
	x    *Context
	a, b *Worker
	e    Endpoint // a's, to b
	m    *MemHandle
	k    *RemoteKey
	ctx  context.Context
}

func newSWPair(t *testing.T, transport string, size int) *swPair {
	t.Helper()
	var ps []uct.Component
	for _, c := range transports.All() {
		if slices.Contains(strings.Split(transport, ","), c.Name()) {
			ps = append(ps, c)
		}
	}
	return newPairOver(t, ps, size)
}

func newPairOver(t *testing.T, ps []uct.Component, size int) *swPair {
	t.Helper()
	p := newIdlePairOver(t, ps, size)
	p.must(p.e.Flush())
	return p
}

// newIdlePairOver is newPairOver of workers that have made no progress yet.
func newIdlePairOver(t *testing.T, ps []uct.Component, size int, env ...string) *swPair {
	t.Helper()
	set, _, err := config.Load(config.Options{Env: append(env, "UCX_SOFT_LINK=inproc"), Dirs: []string{}}, Tables(ps)...)
	require.NoError(t, err)
	p := &swPair{t: t}
	p.x, err = Open(Config{Providers: ps, Settings: set, CloseTimeout: 100 * time.Millisecond})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.x.Close() }) // what is cut off in the middle tells so
	p.a, err = p.x.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	p.b, err = p.x.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	p.e, err = p.a.NewEndpoint(p.b.Address(), EndpointConfig{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	p.ctx = ctx
	p.m, err = p.x.Register(make([]byte, size), MemConfig{})
	require.NoError(t, err)
	p.k, err = p.e.UnpackKey(p.m.Key())
	require.NoError(t, err)
	return p
}

// until drives both until cond is true.
func (p *swPair) until(cond func() bool) {
	p.t.Helper()
	for !cond() {
		require.NoError(p.t, p.ctx.Err(), "waited too long")
		p.a.Progress()
		p.b.Progress()
	}
}

func (p *swPair) wait(r Request) error {
	p.t.Helper()
	p.until(r.Done)
	return r.Err()
}

func (p *swPair) must(r Request) {
	p.t.Helper()
	require.NoError(p.t, p.wait(r))
}

func (p *swPair) lane() *lane { return &p.a.t.lanes[p.k.atomic.lane] }

func (p *swPair) word(off uint64) Atomic[uint64] {
	p.t.Helper()
	w, err := AtomicAt[uint64](p.k, off)
	require.NoError(p.t, err)
	return w
}

// What the owner refuses is told by the next flush, once, whether its own
// question or that of a fence heard of it.
func TestSoftwareFlushTellsOnce(t *testing.T) {
	for _, tr := range []string{"ud", "rc"} {
		for _, fenced := range []bool{false, true} {
			p := newSWPair(t, tr, 64)
			w := p.word(0)
			p.must(w.Or(1))
			require.NoError(t, p.m.Close())
			require.Zero(t, w.Or(2), "it is sent and done")
			require.Zero(t, w.Xor(4))
			if fenced {
				p.e.Fence()
				p.until(func() bool { return p.lane().emul.handled == p.lane().emul.sent || tr == "ud" })
			}
			require.ErrorIs(t, p.wait(p.e.Flush()), ErrRemoteAccess)
			p.must(p.e.Flush())
			p.must(p.a.Flush())
			err := p.e.Flush().Err()
			require.NoError(t, err)
			require.NoError(t, p.e.Info().Err, "the endpoint is as good as before")
		}
	}
}

// A fence on a lane whose device works alone stands between what the owner's
// worker has to do and what the device does at once.
func TestSoftwareFenceBeforeTheDevice(t *testing.T) {
	p := newSWPair(t, "rc", 64)
	w, l := p.word(0), p.lane()
	for round := range uint64(20) {
		require.Zero(t, w.Or(0xff<<(round%8)))
		p.e.Fence()
		require.NotNil(t, l.stalledEp())
		put := p.k.PutUint64(round, 0)
		get := p.k.GetUint64(0)
		p.e.Fence()
		add := w.Add(1)
		flush := p.e.Flush()
		for range 20 {
			p.a.Progress() // its owner does nothing
		}
		for _, r := range []Request{put, get.r, flush} {
			require.False(t, r.Done(), "round %d", round)
		}
		p.must(flush)
		p.must(put)
		p.must(add)
		v, err := get.Wait(p.ctx)
		require.NoError(t, err)
		require.Contains(t, []uint64{round, round | 0xff<<(round%8)}, v, "no fence stands between put and get")
		require.Equal(t, round+1, p.m.Load64(0))
		require.Nil(t, l.stalledEp())
		require.NotZero(t, p.k.put, "the fast paths are open again")
	}
}

// Posts behind a halted lane keep their order with messages.
func TestSoftwareHaltedLaneKeepsOrder(t *testing.T) {
	p := newSWPair(t, "rc", 64)
	w := p.word(8)
	for i := range uint64(300) {
		w.Xor(i)
		p.e.Fence()
		p.k.PutUint64(i, 0)
		p.e.Fence()
		p.e.TagSendUint64(i, 7)
	}
	flush := p.e.Flush()
	buf := make([]byte, 8)
	for i := range uint64(300) {
		r := p.b.TagRecv(buf, 7, ^Tag(0))
		p.until(r.Done)
		_, err := r.Wait(p.ctx)
		require.NoError(t, err)
		require.Equal(t, i, wire.Uint64(buf, 0))
		require.GreaterOrEqual(t, p.m.Load64(0), i, "the put before the message is there")
	}
	p.must(flush)
	require.Equal(t, uint64(299), p.m.Load64(0))
}

// What the transport had when a lane was halted was posted before what waits there.
func TestHaltedLanePutsTheOlderFirst(t *testing.T) {
	p := newSWPair(t, "rc", 64)
	require.Zero(t, p.word(0).Or(1))
	p.e.Fence()
	h := p.lane().stalledEp()
	require.NotNil(t, h)
	put := p.k.PutUint64(1, 0)
	since := slices.Clone(h.pending)
	require.Len(t, since, 1)
	var older []uct.Token
	for range 5 {
		i := p.a.t.slab.Alloc(request.Fence)
		p.a.t.slab.Slots[i].Lane, p.a.t.slab.Slots[i].Flags = p.k.atomic.lane, request.FlagReported
		older = append(older, p.a.t.slab.Token(i))
	}
	for _, o := range older {
		require.True(t, p.a.t.requeueStalled(o))
	}
	require.Equal(t, slices.Concat(older, since), h.pending)
	p.must(put)
}

// No more answers are under way than there is room for, whatever is asked for.
func TestSoftwareGetsAreBounded(t *testing.T) {
	const size = 1 << 20
	p := newSWPair(t, "ud", size)
	for i := range p.m.Bytes() {
		p.m.Bytes()[i] = byte(i>>8) ^ byte(i)
	}
	var fs []Fetch[uint64]
	for range 3 * emulMaxReplies {
		fs = append(fs, p.k.GetUint64(8))
	}
	for p.lane().stalledEp() == nil {
		require.NoError(t, p.ctx.Err(), "waited too long")
		p.a.Progress() // the owner does nothing
	}
	require.Equal(t, emulMaxReplies, p.lane().emul.outstanding)
	got := make([]byte, size)
	r := p.k.Get(got, 0)
	p.until(func() bool {
		require.LessOrEqual(t, p.lane().emul.outstanding, emulMaxReplies)
		return r.Done()
	})
	require.NoError(t, r.Err())
	require.Equal(t, p.m.Bytes(), got)
	for _, f := range fs {
		v, err := f.Wait(p.ctx)
		require.NoError(t, err)
		require.Equal(t, p.m.Load64(8), v)
	}
	p.must(p.e.Flush())
	require.Nil(t, p.lane().stalledEp())
	require.Zero(t, p.lane().emul.outstanding)
}

// Operations that await answers end when the peer, the endpoint or the worker
// does.
func TestSoftwareEndsWithItsPeer(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *swPair)
		want error
	}{
		"peer":     {func(p *swPair) { _ = p.b.Close() }, ErrPeerFailed},
		"endpoint": {func(p *swPair) { p.e.Abort(nil) }, ErrCanceled},
		"worker":   {func(p *swPair) { _ = p.a.Close() }, ErrClosed},
	} {
		for _, tr := range []string{"ud", "rc"} {
			t.Run(name+" "+tr, func(t *testing.T) {
				p := newSWPair(t, tr, 1<<20)
				w := p.word(0)
				r := p.k.Get(make([]byte, 1<<20), 0)
				fs := []Fetch[uint64]{w.FetchOr(1), w.Swap(2), p.k.GetUint64(8)}
				w.Or(5)
				p.e.Fence()
				rs := []Request{p.k.PutUint64(1, 16), p.k.Put(make([]byte, 100_000), 0), p.e.Flush()}
				c.end(p)
				for _, f := range fs {
					p.until(f.Done)
					if _, err := f.Wait(p.ctx); err != nil { // what the device did is done
						require.ErrorIs(t, err, c.want)
					}
				}
				for _, q := range append(rs, r) {
					p.until(q.Done)
					if err := q.Err(); err != nil {
						require.ErrorIs(t, err, c.want)
					}
				}
				require.Error(t, rs[2].Err(), "the flush knows")
				p.until(func() bool {
					return !slices.ContainsFunc(p.a.t.emul.ops, func(o emulOp) bool { return o.live })
				})
			})
		}
	}
}

// An endpoint that failed refuses what goes by its keys, though the transport is
// as good as before: who broke the protocol is not heard any more.
func TestKeyOfFailedEndpoint(t *testing.T) {
	for _, tr := range []string{"ud", "rc"} {
		t.Run(tr, func(t *testing.T) {
			p := newSWPair(t, tr, 64)
			w := p.word(0)
			e, err := p.b.NewEndpoint(p.a.Address(), EndpointConfig{})
			require.NoError(t, err)
			p.must(e.TagSend([]byte("hello"), 1))
			p.must(e.Flush())
			waiting := w.FetchOr(1)
			l := &p.b.t.lanes[p.b.t.eps[p.b.t.endpoint(e)].lane]
			require.Equal(t, ucs.OK, l.ep.AMShort(29, 0, nil))
			p.until(func() bool { return p.e.Info().Err != nil })
			rs := []Request{
				p.k.PutUint64(1, 8), p.k.Put(make([]byte, 64), 0), p.k.PutInline([]byte("text"), 0), p.k.Get(make([]byte, 64), 0),
				p.k.GetUint64(0).r, w.Or(1), w.Add(1), w.FetchOr(1).r, w.FetchAdd(1).r, w.Swap(1).r, p.e.Flush(),
			}
			for i, r := range rs {
				require.ErrorIs(t, p.wait(r), ErrPeerFailed, "operation %d", i)
			}
			p.until(waiting.Done)
			if _, err := waiting.Wait(p.ctx); err != nil { // it may have been answered before
				require.ErrorIs(t, err, ErrPeerFailed)
			}
		})
	}
}

// A number that is used again does not stand for what it stood for before.
func TestSoftwareTable(t *testing.T) {
	var x emulTable
	_, _, st := x.acquire(1, 0, 1, 0)
	require.Equal(t, ucs.RemoteAccess, st)
	buf := make([]byte, 16)
	base := addressOf(buf)
	old := x.add(buf, uct.MemRemotePut)
	x.remove(old)
	x.remove(old)
	m := x.add(buf, uct.MemRemotePut)
	require.Equal(t, old.key.number(), m.key.number())
	for _, c := range []struct {
		name    string
		key     emulKey
		addr, n uint64
		need    uct.MemFlags
		want    ucs.Status
	}{
		{"whole", m.key, base, 16, uct.MemRemotePut, ucs.OK},
		{"its end", m.key, base + 16, 0, uct.MemRemotePut, ucs.OK},
		{"stale", old.key, base, 1, uct.MemRemotePut, ucs.RemoteAccess},
		{"tag", m.key ^ 1<<40, base, 1, uct.MemRemotePut, ucs.RemoteAccess},
		{"number", m.key + 1, base, 1, uct.MemRemotePut, ucs.RemoteAccess},
		{"number beyond the table", m.key | (emulMaxMems - 1), base, 1, uct.MemRemotePut, ucs.RemoteAccess},
		{"zero", 0, base, 1, uct.MemRemotePut, ucs.RemoteAccess},
		{"right", m.key, base, 1, uct.MemRemoteGet, ucs.RemoteAccess},
		{"before", m.key, base - 1, 1, uct.MemRemotePut, ucs.RemoteAccess},
		{"beyond", m.key, base + 1, 16, uct.MemRemotePut, ucs.RemoteAccess},
		{"length", m.key, base, 1 << 63, uct.MemRemotePut, ucs.RemoteAccess},
		{"around", m.key, ^uint64(0), 2, uct.MemRemotePut, ucs.RemoteAccess},
	} {
		got, b, st := x.acquire(c.key, c.addr, c.n, c.need)
		require.Equal(t, c.want, st, c.name)
		if st == ucs.OK {
			require.Len(t, b, int(c.n), c.name)
			got.release()
		}
	}
	for range 100 {
		x.add(buf, uct.MemRemotePut)
	}
	_, _, st = x.acquire(m.key, base, 1, uct.MemRemotePut)
	require.Equal(t, ucs.OK, st, "the table has grown")
	m.release()
}

// Close waits for an access that is under way, and none begins after.
func TestSoftwareCloseWaits(t *testing.T) {
	var x emulTable
	m := x.add(make([]byte, 8), uct.MemRemotePut)
	_, _, st := x.acquire(m.key, m.base, 8, uct.MemRemotePut)
	require.Equal(t, ucs.OK, st)
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.remove(m)
	}()
	for m.users.Load() > 0 {
		time.Sleep(time.Microsecond)
	}
	_, _, st = x.acquire(m.key, m.base, 8, uct.MemRemotePut)
	require.Equal(t, ucs.RemoteAccess, st)
	select {
	case <-done:
		t.Fatal("it did not wait")
	default:
	}
	m.release()
	<-done
}
