package soft

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// tick and progress run all engines of a device.
func (d *device) tick(now ucs.Time) {
	for _, e := range *d.engines.Load() {
		e.tick(now)
	}
}

func (d *device) progress() (n int) {
	for _, e := range *d.engines.Load() {
		n += e.progress()
	}
	return n
}

// newDomain allocates a parent domain in a thread domain of its own.
func newDomain(t testing.TB, p verbs.PD, c verbs.Context) (verbs.PD, verbs.TD) {
	td, err := c.AllocTD(verbs.TDConfig{})
	require.NoError(t, err)
	closeAtEnd(t, td)
	parent, err := p.Parent(td)
	require.NoError(t, err)
	closeAtEnd(t, parent)
	return parent, td
}

// newThreadEnd is an end on an open device, in a thread domain of its own. Without a queue it has
// its own one.
func newThreadEnd(t testing.TB, c verbs.Context, q verbs.CQ, typ verbs.QPType, size int) *end {
	e := &end{t: t, typ: typ, c: c, cq: q, buf: make([]byte, size)}
	pd, err := c.AllocPD()
	require.NoError(t, err)
	closeAtEnd(t, pd)
	e.pd, _ = newDomain(t, pd, c)
	if q == nil {
		e.cq, err = c.CreateCQ(verbs.CQConfig{Depth: 1024, Domain: e.pd})
		require.NoError(t, err)
		closeAtEnd(t, e.cq)
	}
	e.mr, err = e.pd.Register(e.buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic})
	require.NoError(t, err)
	closeAtEnd(t, e.mr)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{
		Type: typ, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSend: 256, MaxRecv: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
	})
	require.NoError(t, err)
	closeAtEnd(t, e.qp)
	return e
}

// openedDevice opens the provider's first device until the end of the test.
func openedDevice(t testing.TB, p *Provider) *device {
	c := opened(t, p)
	closeAtEnd(t, c)
	return c.(*device)
}

// connectBoth connects two ends.
func connectBoth(a, b *end) {
	a.connect(b)
	b.connect(a)
}

// TestEngineOfThreadDomain: a thread domain has an engine from its first object on, and a
// completion queue runs the engines of its queue pairs.
func TestEngineOfThreadDomain(t *testing.T) {
	d := openTest(t, Config{})
	p := testPD(t, d)
	engines := func() []*engine { return *d.engines.Load() }
	runs := func(c *cq) []*engine {
		if e := c.engine.Load(); e != nil {
			return []*engine{e}
		}
		return *c.engines.Load()
	}
	create := func(p verbs.PD, c *cq) *qp {
		q, err := p.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
		require.NoError(t, err)
		closeAtEnd(t, q)
		return q.(*qp)
	}
	own := &d.own
	shared := testCQ(t, d, verbs.CQConfig{Depth: 16})
	require.Equal(t, []*engine{own}, runs(shared))

	first, dom := newDomain(t, p, d)
	second, _ := newDomain(t, p, d)
	none, err := p.Parent(nil)
	require.NoError(t, err)
	closeAtEnd(t, none)
	require.Equal(t, []*engine{own}, engines(), "unused domains cost nothing")
	require.Equal(t, 2*sizeOf[td](), value(t, d, "bytes.td"))

	alone := testCQ(t, d, verbs.CQConfig{Depth: 16, Domain: first})
	require.Len(t, engines(), 2)
	require.Equal(t, 2*sizeOf[td]()+sizeOf[engine]()+minInbox*sizeOf[cell](), value(t, d, "bytes.td"))
	e1 := dom.(*td).e
	require.Equal(t, []*engine{e1}, runs(alone))
	a := create(first, shared)
	require.Same(t, e1, a.e)
	require.Equal(t, []*engine{e1}, runs(shared))
	b, c := create(first, shared), create(second, shared)
	require.Same(t, e1, b.e)
	require.Len(t, engines(), 3)
	x, y := create(p, shared), create(none, alone)
	require.Same(t, own, x.e)
	require.Same(t, own, y.e)
	require.Equal(t, []*engine{e1, c.e, own}, runs(shared))
	require.Equal(t, []*engine{own}, runs(alone))
	for _, q := range []*qp{a, x, b} {
		require.NoError(t, q.Close())
	}
	require.Equal(t, []*engine{c.e}, runs(shared))
	require.NoError(t, y.Close())
	require.Equal(t, []*engine{e1}, runs(alone), "that of its domain again")

	e1.counts.add(cntDroppedQPN, 7)
	for _, o := range []interface{ Close() error }{alone, first, dom} {
		require.Equal(t, uint64(7), value(t, d, "device.dropped_qpn"))
		require.NoError(t, o.Close())
	}
	require.Equal(t, uint64(7), value(t, d, "device.dropped_qpn"), "they outlive the engine")
	require.Equal(t, []*engine{own, c.e}, engines())
}

// flow is one end of a connection that sends numbered messages both ways.
type flow struct {
	*end
	total, sent, done, got int
	wc                     [16]verbs.WC
}

const streamSlots = 64

func newFlow(e *end, total int) *flow {
	s := &flow{end: e, total: total}
	for i := range streamSlots {
		s.recv(uint64(i), 8*i, 8)
	}
	return s
}

// step sends what may be sent, polls once, and checks what arrived. It reports whether all is done.
func (s *flow) step() bool {
	for s.sent < s.total && s.sent-s.done < streamSlots/2 {
		wr := verbs.SendWR{ID: uint64(s.sent), Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8}
		binary.LittleEndian.PutUint64(wr.Inline[:], uint64(s.sent))
		s.send(wr)
		s.sent++
	}
	n := s.cq.Poll(s.wc[:])
	require.GreaterOrEqual(s.t, n, 0)
	for _, w := range s.wc[:n] {
		require.Equal(s.t, verbs.WCSuccess, w.Status, "%+v", w)
		if w.Op == verbs.WCSend {
			require.Equal(s.t, uint64(s.done), w.ID)
			s.done++
			continue
		}
		at := 8 * int(w.ID)
		require.Equal(s.t, uint64(s.got), binary.LittleEndian.Uint64(s.buf[at:]), "in order, and once")
		s.got++
		s.recv(w.ID, at, 8)
	}
	return s.done == s.total && s.got == s.total
}

// driveFlows runs flows until all are done.
func driveFlows(t testing.TB, ss ...*flow) {
	for end := time.Now().Add(time.Minute); ; {
		all := true
		for _, s := range ss {
			all = s.step() && all
		}
		if all {
			return
		}
		require.True(t, time.Now().Before(end), "not done")
		if race.Enabled {
			runtime.Gosched()
		}
	}
}

// TestThreadsStream: two goroutines send and receive side by side, each with thread domains of its
// own. Every message arrives once and in order.
func TestThreadsStream(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		for _, form := range []string{"one device", "two devices", "a device each"} {
			t.Run(form, func(t *testing.T) {
				total := 5000
				if race.Enabled {
					total = 2000
				}
				a := openedDevice(t, p)
				b := a
				if form != "one device" {
					b = openedDevice(t, p)
				}
				var x, y [2]*flow
				for i := range x {
					ex, ey := newThreadEnd(t, a, nil, verbs.RC, 1024), newThreadEnd(t, b, nil, verbs.RC, 1024)
					connectBoth(ex, ey)
					x[i], y[i] = newFlow(ex, total), newFlow(ey, total)
				}
				if form == "a device each" { // one goroutine drives both connections of a device
					x[1], y[0] = y[0], x[1]
				}
				var all sync.WaitGroup
				for i := range x {
					all.Go(func() {
						runtime.LockOSThread()
						driveFlows(t, x[i], y[i])
					})
				}
				all.Wait()
			})
		}
	})
}

// TestQueueOfEngines: a completion queue of queue pairs in several domains drives all of them.
func TestQueueOfEngines(t *testing.T) {
	overModes(t, func(t *testing.T, c Config) {
		d := openedDevice(t, New(c))
		q, err := d.CreateCQ(verbs.CQConfig{Depth: 1024})
		require.NoError(t, err)
		closeAtEnd(t, q)
		a, b := newThreadEnd(t, d, q, verbs.RC, 64), newThreadEnd(t, d, q, verbs.RC, 64)
		connectBoth(a, b)
		var wc [8]verbs.WC
		for i := range uint64(200) {
			b.recv(i, 0, 8)
			a.send(verbs.SendWR{ID: 1000 + i, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8})
			seen := map[uint64]bool{}
			for end := time.Now().Add(time.Minute); len(seen) < 2; {
				n := q.Poll(wc[:1+i%8])
				for _, w := range wc[:n] {
					require.Equal(t, verbs.WCSuccess, w.Status)
					seen[w.ID] = true
				}
				require.True(t, time.Now().Before(end))
			}
			require.Equal(t, map[uint64]bool{i: true, 1000 + i: true}, seen)
		}
	})
}

// overModes runs a test over each link, in the modes in which the program's polls move packets.
func overModes(t *testing.T, test func(t *testing.T, c Config)) {
	for _, mode := range []EngineMode{EngineInline, EngineBackground} {
		for _, c := range []Config{{Link: LinkInproc, Engine: mode}, {Link: LinkUDP, Addr: localhost, Engine: mode}} {
			t.Run(fmt.Sprint(c.Link, mode), func(t *testing.T) { test(t, c) })
		}
	}
}

// TestPassiveEngine: requests to a queue pair whose completion queue is not polled end, while
// other engines of its device are polled. Before each round all completion queues are polled, so
// that the background goroutine has to notice that one is not any more.
func TestPassiveEngine(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		d := openedDevice(t, p)
		a, b, other := newThreadEnd(t, d, nil, verbs.RC, 4096), newThreadEnd(t, d, nil, verbs.RC, 4096), newThreadEnd(t, d, nil, verbs.RC, 64)
		connectBoth(a, b)
		var wc [1]verbs.WC
		for round := range 30 {
			if round%2 == 0 {
				for range 100 {
					require.Zero(t, b.cq.Poll(wc[:]))
					require.Zero(t, other.cq.Poll(wc[:]))
				}
			}
			for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
				a.send(verbs.SendWR{
					ID: 1, Op: op, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 4096)},
					Remote: b.mr.Addr(), RKey: b.mr.RKey(),
				})
				for n := 0; ; n++ {
					k := a.cq.Poll(wc[:])
					require.Zero(t, other.cq.Poll(nil))
					if k > 0 {
						break
					}
					if n%64 == 0 {
						runtime.Gosched()
					}
				}
				require.Equal(t, verbs.WCSuccess, wc[0].Status)
			}
		}
		assert.Zero(t, value(t, d, "device.timeouts"))
	})
}

// TestEngineWakes: work for an engine that the background goroutine sleeps for wakes the goroutine, once,
// also while it does not sleep for another engine.
func TestEngineWakes(t *testing.T) {
	d := openedDevice(t, New(Config{Link: LinkInproc, Engine: EngineInline}))
	a, b := newThreadEnd(t, d, nil, verbs.RC, 64), newThreadEnd(t, d, nil, verbs.RC, 64)
	connectBoth(a, b)
	d.background.wakeups = make(chan struct{}, 1) // of the goroutine, which this mode does not have
	e := b.qp.(*qp).e
	write := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendInline, InlineLen: 8, Remote: b.mr.Addr(), RKey: b.mr.RKey()}
	a.send(write)
	require.Empty(t, d.background.wakeups, "it sleeps for no engine")
	e.sleeping.Store(1)
	a.send(write)
	require.Zero(t, e.sleeping.Load())
	require.Len(t, d.background.wakeups, 1)
	<-d.background.wakeups
	a.send(write)
	require.Empty(t, d.background.wakeups)
}

// TestNewEngineIsServed: the background goroutine runs an engine that was added while it slept.
func TestNewEngineIsServed(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		from, d := openedDevice(t, p), openedDevice(t, p)
		for range 5 {
			asleep := func() bool {
				for _, e := range *d.engines.Load() {
					if e.sleeping.Load() == 0 {
						return false
					}
				}
				return true
			}
			require.Eventually(t, asleep, 10*time.Second, time.Millisecond)
			a, b := newThreadEnd(t, from, nil, verbs.RC, 64), newThreadEnd(t, d, nil, verbs.RC, 64)
			connectBoth(a, b)
			a.send(verbs.SendWR{Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey()})
			require.Equal(t, verbs.WCSuccess, a.completion().Status)
		}
	})
}

// TestDatagramsOfEngines: a datagram gets to the engine of its queue pair.
func TestDatagramsOfEngines(t *testing.T) {
	for _, c := range []Config{{Link: LinkInproc, Engine: EngineInline}, {Link: LinkUDP, Addr: localhost, Engine: EngineInline}} {
		t.Run(c.Link, func(t *testing.T) {
			p := New(c)
			a, b := newThreadEnd(t, openedDevice(t, p), nil, verbs.UD, 64), newThreadEnd(t, openedDevice(t, p), nil, verbs.UD, 64)
			for _, e := range []*end{a, b} {
				require.NoError(t, verbs.StartUD(e.qp, verbs.QPAttr{Port: 1, QKey: testQKey}))
			}
			gid, err := b.c.GID(1, 0)
			require.NoError(t, err)
			port, err := b.c.Port(1)
			require.NoError(t, err)
			ah, err := a.pd.CreateAH(verbs.AHAttr{DGID: gid, DLID: port.LID, Port: 1, HopLimit: 64, PeerFeatures: port.PeerFeatures})
			require.NoError(t, err)
			closeAtEnd(t, ah)
			b.recv(7, 0, 64)
			a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline, InlineLen: 8, AH: ah.ID(), QPN: b.qp.QPN(), QKey: testQKey})
			require.Equal(t, uint64(7), b.completion(a).ID)
		})
	}
}

// TestDeferredToSilentEngine: packets for an engine that does not run keep no other engine from
// receiving, however many they are.
func TestDeferredToSilentEngine(t *testing.T) {
	p := New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline})
	from, d := openedDevice(t, p), openedDevice(t, p)
	a, b := newThreadEnd(t, from, nil, verbs.RC, 1024), newThreadEnd(t, d, nil, verbs.RC, 1024)
	connectBoth(a, b)
	x, y := newFlow(a, 500), newFlow(b, 500)
	for range 100 { // more queue pairs than the socket has buffers
		s, r := newThreadEnd(t, from, nil, verbs.RC, 64), newThreadEnd(t, d, nil, verbs.RC, 64)
		connectBoth(s, r)
		s.cq.Poll(nil) // the first post after a poll is sent at once
		s.send(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendInline, InlineLen: 8, Remote: r.mr.Addr(), RKey: r.mr.RKey()})
	}
	driveFlows(t, x, y)
	require.NotZero(t, d.udp.Counts[udp.RxNoBuffer].Load())
}

// TestCloseThreadsUnderTraffic: domains with their queue pairs, queues and memory come and go
// while others of the same device are in use.
func TestCloseThreadsUnderTraffic(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		d := openedDevice(t, p)
		a, b := newThreadEnd(t, d, nil, verbs.RC, 1024), newThreadEnd(t, d, nil, verbs.RC, 1024)
		connectBoth(a, b)
		x, y := newFlow(a, 1<<30), newFlow(b, 1<<30)
		var stop atomic.Bool
		var all sync.WaitGroup
		all.Go(func() {
			for !stop.Load() {
				x.step()
				y.step()
				runtime.Gosched()
			}
		})
		rounds := 50
		if race.Enabled {
			rounds = 15
		}
		before := d.Stats()
		for round := range rounds {
			t.Run("round", func(t *testing.T) { // its end closes what it made
				a, b := newThreadEnd(t, d, nil, verbs.RC, 1<<16), newThreadEnd(t, d, nil, verbs.RC, 1<<16)
				connectBoth(a, b)
				a.load(b)
				b.load(a)
				var wc [16]verbs.WC
				for range round * 10 {
					a.cq.Poll(wc[:])
					if round%2 == 0 {
						b.cq.Poll(wc[:])
					}
				}
				require.NoError(t, a.mr.Close())
			})
		}
		stop.Store(true)
		all.Wait()
		require.Greater(t, x.got, 0)
		require.Len(t, *d.engines.Load(), 3)
		after := d.Stats().Snapshot()
		for i, c := range before.Snapshot() {
			if len(c.Name) > 7 && c.Name[:7] == "device." {
				require.GreaterOrEqual(t, after[i].Value, c.Value, c.Name)
			}
		}
	})
}
