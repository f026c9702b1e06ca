package soft

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
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
	"github.com/goucx/goucx/verbs/wire"
)

// ends fails the test where f does not return.
func ends(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		buf := make([]byte, 1<<20)
		t.Fatalf("%s hangs\n%s", what, buf[:runtime.Stack(buf, true)])
	}
}

// closeAll closes an end with whatever is under way; the cleanup's second close
// is none.
func (e *end) closeAll() {
	for _, c := range []interface{ Close() error }{e.qp, e.mr, e.cq, e.ch, e.pd, e.c} {
		assert.NoError(e.t, c.Close())
	}
}

// load posts work of every kind that nobody will finish soon: messages without
// receives, long writes and reads, atomics, receives. A quarter of the memory is
// sent from, one read into, one written by the peer, one read by it.
func (e *end) load(o *end) {
	n := len(e.buf) / 4
	for i := range 20 {
		e.recv(uint64(i), 2*n, n)
	}
	post := func(i int, op verbs.Opcode, from, to, n int) {
		e.send(verbs.SendWR{
			ID: uint64(i), Op: op, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(from, n)},
			Remote: o.mr.Addr() + uint64(to), RKey: o.mr.RKey(),
		})
	}
	for i := range 30 {
		post(i, verbs.OpWrite, 0, 2*n, n)
		if e.typ == verbs.RC {
			post(i, verbs.OpRead, n, 3*n, n)
			post(i, verbs.OpFetchAdd, n, 2*n, 8)
		}
		post(i, verbs.OpSend, 0, 0, n)
	}
}

// TestCloseUnderWork: whatever is under way, and in whatever order the two ends
// go, closing ends.
func TestCloseUnderWork(t *testing.T) { connected(t, testCloseUnderWork) }

// connected runs a test over each link for each type of connection.
func connected(t *testing.T, test func(t *testing.T, p *Provider, typ verbs.QPType)) {
	for _, typ := range []verbs.QPType{verbs.RC, verbs.UC} {
		t.Run(typ.String(), func(t *testing.T) {
			overLinks(t, func(t *testing.T, p *Provider) { test(t, p, typ) })
		})
	}
}

func testCloseUnderWork(t *testing.T, p *Provider, typ verbs.QPType) {
	for _, c := range []struct {
		name string
		run  func(a, b *end)
	}{
		{"before anything moved", func(*end, *end) {}},
		{"while it moves", func(a, b *end) {
			var wc [4]verbs.WC
			for range 20 {
				a.cq.Poll(wc[:])
				b.cq.Poll(wc[:])
			}
		}},
		{"the peer is gone", func(a, b *end) {
			b.closeAll()
			var wc [4]verbs.WC
			for range 200 {
				a.cq.Poll(wc[:])
			}
		}},
		{"the peer's queue pair is gone", func(a, b *end) {
			assert.NoError(a.t, b.qp.Close())
			var wc [4]verbs.WC
			for range 200 {
				a.cq.Poll(wc[:])
				b.cq.Poll(wc[:])
			}
		}},
		{"in an error", func(a, _ *end) {
			assert.NoError(a.t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateErr}, verbs.AttrState))
		}},
		{"drained", func(a, _ *end) {
			assert.NoError(a.t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState))
		}},
		{"reset", func(a, _ *end) {
			assert.NoError(a.t, a.qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newEnd(t, p, typ, 1<<17), newEnd(t, p, typ, 1<<17)
			a.connect(b)
			b.connect(a)
			ends(t, "working and closing", func() {
				a.load(b)
				b.load(a)
				c.run(a, b)
				a.closeAll()
				b.closeAll()
			})
		})
	}
}

// TestPostsRaceWithClose: eight goroutines post and poll at four connections
// while the memory of each is closed, and then the queue pairs. After its Close,
// memory keeps what the program puts there.
func TestPostsRaceWithClose(t *testing.T) { connected(t, testPostsRaceWithClose) }

func testPostsRaceWithClose(t *testing.T, p *Provider, typ verbs.QPType) {
	rounds := 6
	if testing.Short() || race.Enabled {
		rounds = 3
	}
	for range rounds {
		a, b := newEnd(t, p, typ, 8), newEnd(t, p, typ, 8)
		var lanes [4][2]*end
		for i := range lanes {
			lanes[i] = [2]*end{a.lane(), b.lane()}
			lanes[i][0].connect(lanes[i][1])
			lanes[i][1].connect(lanes[i][0])
		}
		ends(t, "posting and closing", func() { raceWithClose(t, lanes[:]) })
		if t.Failed() {
			return
		}
	}
}

// lane is another queue pair of the end, with memory of its own.
func (e *end) lane() *end {
	o := e.another()
	o.buf = make([]byte, numZones*zone)
	var err error
	o.mr, err = e.pd.Register(o.buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, o.mr.Close()) })
	return o
}

// Zones of a lane's memory, so that what the program may not do, two operations
// on the same bytes, does not hide what the engine may not do.
const (
	zone     = 8 << 10
	sources  = 0 * zone // of sends and writes
	results  = 1 * zone // of reads and atomics
	receives = 2 * zone
	written  = 3 * zone // by the peer
	read     = 4 * zone
	counted  = 5 * zone // by atomics
	numZones = 6
)

// poison is what the program puts where memory was registered; nothing else has
// it.
const poison = 0xa5

func raceWithClose(t *testing.T, lanes [][2]*end) {
	var posted atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for i, l := range lanes {
		for side := range l {
			rng := rand.New(rand.NewPCG(uint64(side), uint64(i)))
			all.Go(func() { hammer(l[side], l[1-side], rng, &posted, &stop) })
		}
	}
	more := func(n int64) {
		for n += posted.Load(); posted.Load() < n; {
			runtime.Gosched()
		}
	}
	more(200)
	for i, l := range lanes {
		first, second := l[i%2], l[1-i%2]
		for _, e := range []*end{first, second} {
			assert.NoError(t, e.mr.Close())
			for k := range e.buf {
				e.buf[k] = poison
			}
			more(20)
		}
		assert.NoError(t, second.qp.Close())
		more(20)
		assert.NoError(t, first.qp.Close())
	}
	stop.Store(true)
	all.Wait()
	for _, l := range lanes {
		for _, e := range l {
			assert.Equal(t, len(e.buf), bytes.Count(e.buf, []byte{poison}), "the memory was touched after its Close")
		}
	}
}

// hammer posts at random, also what must fail, until it is stopped.
func hammer(e, o *end, rng *rand.Rand, posted *atomic.Int64, stop *atomic.Bool) {
	ops := []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd, verbs.OpWriteImm}
	wrs, rrs := make([]verbs.SendWR, 1), make([]verbs.RecvWR, 1)
	var wc [8]verbs.WC
	for !stop.Load() {
		n, from, to := 8<<rng.IntN(11), sources, written
		w := &wrs[0]
		*w = verbs.SendWR{Op: ops[rng.IntN(len(ops))], Flags: verbs.SendSignaled, NumSG: 1, RKey: o.mr.RKey()}
		switch w.Op {
		case verbs.OpFetchAdd:
			n, from, to = 8, results, counted
		case verbs.OpRead:
			from, to = results+8, read
			n -= 8
		default:
			if n <= verbs.InlineLen && rng.IntN(2) == 0 {
				w.Flags |= verbs.SendInline
			}
		}
		w.SG[0], w.Remote = e.sge(from, n), o.mr.Addr()+uint64(to)
		rrs[0] = verbs.RecvWR{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(receives, zone)}}
		e.qp.PostRecv(rrs)
		e.qp.PostSend(wrs)
		e.cq.Poll(wc[:])
		posted.Add(1)
		runtime.Gosched() // those who wait for a turn of the engine get theirs
	}
}

// TestInlineRacesWithClose: a post that copies inline data out of registered
// memory has done so when the memory's Close returns.
func TestInlineRacesWithClose(t *testing.T) {
	a, b := pair(t, New(Config{Link: LinkInproc}), 64)
	for range 50 {
		buf := make([]byte, verbs.InlineLen)
		m, err := a.pd.Register(buf, verbs.MRConfig{Access: verbs.LocalWrite})
		require.NoError(t, err)
		var posted atomic.Int64
		var stop atomic.Bool
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendInline | verbs.SendSignaled, NumSG: 1, Remote: b.mr.Addr(), RKey: b.mr.RKey()}
				wr.SG[0] = verbs.SGE{Addr: m.Addr(), Len: verbs.InlineLen, LKey: m.LKey()}
				var wc [4]verbs.WC
				for !stop.Load() {
					a.qp.PostSend([]verbs.SendWR{wr})
					a.cq.Poll(wc[:])
					b.cq.Poll(wc[:])
					posted.Add(1)
					runtime.Gosched()
				}
			})
		}
		for posted.Load() < 50 {
			runtime.Gosched()
		}
		require.NoError(t, m.Close())
		for k := range buf {
			buf[k] = poison // the race detector tells of a reader
		}
		stop.Store(true)
		all.Wait()
	}
}

// TestFloodOfGarbage: whatever strangers, and the peer's own port, put on the
// device's port, the traffic goes on, the counters tell, and no memory grows.
func TestFloodOfGarbage(t *testing.T) {
	const messages, burst = 2000, 40
	p := New(Config{Link: LinkUDP, Addr: localhost})
	a, b := pair(t, p, 1<<16)
	f := newFlood(t, a, b)
	work := func(n int) {
		var ready sync.WaitGroup
		for i := range n {
			// A burst at a time: the socket's buffer holds it beside the traffic.
			ready.Wait()
			ready.Go(func() { f.burst(burst) })
			size := 8 + i*37%(len(a.buf)-8)
			binary.NativeEndian.PutUint64(a.buf[size-8:], uint64(i))
			b.recv(uint64(i), 0, len(b.buf))
			a.send(verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, size)}})
			w := b.completion(a)
			require.Equal(t, verbs.WC{ID: uint64(i), Op: verbs.WCRecv, Len: uint32(size), QPN: b.qp.QPN(), SLID: w.SLID}, w)
			require.Equal(t, a.buf[:size], b.buf[:size])
			require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		}
		ready.Wait()
	}
	work(messages / 10) // buffers, rings
	before := heap()
	work(messages)
	grown := int64(heap()) - int64(before)
	// Each end's socket may come to hold 64 buffers of 64 KB, as packets wait for
	// their owners; of each packet less than a hundred bytes would be left beside.
	assert.Less(t, grown, int64(2*64*64<<10), "the heap has grown")
	for _, name := range []string{"icrc", "qpn", "source", "short", "opcode"} {
		n := value(t, b.device(), "device.dropped_"+name)
		if name == "short" {
			n += b.device().udp.Counts[udp.RxShort].Load() // those that stand alone
		}
		assert.Positive(t, n, name)
	}
	t.Logf("%d packets of garbage, heap %+d bytes", f.sent, grown)
}

// flood sends garbage to b.
type flood struct {
	stranger net.Conn
	peer     *udp.Socket
	to       udp.Peer // b, from the peer's port
	spoiled  udp.Peer // the same with wrong checksums
	qpn      verbs.QPN
	rng      *rand.Rand
	sent     int
	b        []byte
}

func newFlood(t *testing.T, a, b *end) *flood {
	at := b.device().udp
	addr := net.UDPAddrFromAddrPort(netip.AddrPortFrom(localhost, at.LID()))
	c, err := net.DialUDP("udp", nil, addr)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	f := &flood{stranger: c, peer: a.device().udp, qpn: b.qp.QPN(), rng: rand.New(rand.NewPCG(3, 4)), b: make([]byte, 2048)}
	f.to, err = f.peer.Peer(at.GID(), at.LID())
	require.NoError(t, err)
	f.spoiled = f.to
	f.spoiled.Prefix = wire.NewPrefix(netip.AddrPortFrom(localhost, 1), netip.AddrPortFrom(localhost, 2))
	return f
}

// burst sends n datagrams: random bytes, random bytes for the queue pair, packets
// with broken checksums of the peer, good packets that are none of its kind.
func (f *flood) burst(n int) {
	for i := range n {
		f.sent++
		b := f.b[:f.rng.IntN(200)]
		for k := range b {
			b[k] = byte(f.rng.Uint32())
		}
		p := packet{Header: wire.Header{Opcode: wire.SendOnly, DestQP: f.qpn, PSN: verbs.PSN(f.rng.IntN(1 << 24)), PKey: defaultPKey}, nsg: 1, n: len(b)}
		p.sg[0] = b
		to := &f.to
		switch i % 4 {
		case 0:
			if len(b) >= 8 && f.rng.IntN(2) == 0 {
				binary.BigEndian.PutUint32(b[4:], uint32(f.qpn))
			}
			_, _ = f.stranger.Write(b) // a full buffer is the test's own
			continue
		case 1:
			to = &f.spoiled
		case 2:
			p.Opcode, p.SrcQP, p.QKey = wire.UDSendOnly, 5, testQKey
		case 3:
			p.DestQP = f.qpn ^ 1
		}
		x := f.peer.Begin(to)
		addPacket(x, &p)
		if i%8 == 1 { // a train whose last packet is cut off
			p.n, p.nsg = 0, 0
			addPacket(x, &p)
		}
		if st := x.Send(); st != ucs.OK {
			continue
		}
	}
}
