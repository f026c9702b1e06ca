package soft

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

// heap is what the program's live objects take.
func heap() uint64 {
	var m runtime.MemStats
	for range 2 { // finalizers of the first round free in the second
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestManyDevices: a thousand devices of one program, in a ring; each sends its
// number to the next.
func TestManyDevices(t *testing.T) {
	const n = 1000
	p := New(Config{Link: LinkInproc, Engine: EngineInline, Depth: minDepth})
	before := heap()
	began := time.Now()
	devs := make([]*end, n)  // with the queue pair to the next
	froms := make([]*end, n) // with the one from the device before
	for i := range devs {
		devs[i] = newEnd(t, p, verbs.RC, 16)
		froms[i] = devs[i].another()
	}
	opened := time.Since(began)
	for i := range devs {
		next := froms[(i+1)%n]
		devs[i].connect(next)
		next.connect(devs[i])
		next.recv(uint64(i), 8, 8)
	}
	t.Logf("%d devices with two queue pairs: opened in %v, %d bytes each", n, opened, (heap()-before)/n)
	for i, e := range devs {
		binary.NativeEndian.PutUint64(e.buf, uint64(i))
		e.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e.sge(0, 8)}})
	}
	var wc [4]verbs.WC
	for left, end := 2*n, time.Now().Add(time.Minute); left > 0; {
		require.True(t, time.Now().Before(end), "%d completions are missing", left)
		for i, e := range devs {
			for _, w := range wc[:e.poll(wc[:])] {
				left--
				if w.Op == verbs.WCRecv {
					last := uint64((i + n - 1) % n)
					require.Equal(t, [2]uint64{last, last}, [2]uint64{w.ID, binary.NativeEndian.Uint64(e.buf[8:])})
					require.Equal(t, froms[i].qp.QPN(), w.QPN)
				} else {
					require.Equal(t, e.qp.QPN(), w.QPN)
				}
			}
		}
	}
}

// another is the same end with a queue pair more, which shares all but itself.
func (e *end) another() *end {
	o := *e
	var err error
	o.qp, err = e.pd.CreateQP(verbs.QPConfig{
		Type: e.typ, SendCQ: e.cq, RecvCQ: e.cq,
		Caps: verbs.QPCaps{MaxSend: 256, MaxRecv: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64},
	})
	require.NoError(e.t, err)
	e.t.Cleanup(func() { require.NoError(e.t, o.qp.Close()) })
	return &o
}

// TestManyQPs: ten thousand queue pairs, made and connected; what an idle one
// takes is bounded.
func TestManyQPs(t *testing.T) {
	const n, bound = 10_000, 4 << 10
	sw := NewSwitch()
	d, o := openTest(t, Config{Switch: sw}), openTest(t, Config{Switch: sw})
	c, oc := testCQ(t, d, verbs.CQConfig{Depth: 64}), testCQ(t, o, verbs.CQConfig{Depth: 64})
	p, op := testPD(t, d), testPD(t, o)
	peer, err := op.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: oc, RecvCQ: oc})
	require.NoError(t, err)
	qps := make([]verbs.QP, n)
	before := heap()
	began := time.Now()
	for i := range qps {
		qps[i], err = p.CreateQP(verbs.QPConfig{
			Type: verbs.RC, SendCQ: c, RecvCQ: c, Caps: verbs.QPCaps{MaxSend: 1024, MaxRecv: 1024, MaxInline: 64},
		})
		require.NoError(t, err)
	}
	made := time.Since(began)
	far := &end{t: t, c: o, qp: peer}
	began = time.Now()
	for i := range qps {
		(&end{t: t, c: d, qp: qps[i]}).connect(far)
	}
	connected := time.Since(began)
	each := (heap() - before) / n
	t.Logf("%d queue pairs: made in %v, brought to RTS in %v, %d bytes each (the struct %d)", n, made, connected, each, sizeOf[qp]())
	if !race.Enabled {
		assert.LessOrEqual(t, each, uint64(bound))
	}
	assert.LessOrEqual(t, sizes[objects.QP], uint64(bound))
	for i := range qps {
		require.NoError(t, qps[i].Close())
	}
	require.NoError(t, peer.Close())
}

// TestGateAllocations: nothing is allocated per operation, nor per packet of a
// long message, on either link.
func TestGateAllocations(t *testing.T) { overLinks(t, testGateAllocations) }

func testGateAllocations(t *testing.T, p *Provider) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	const long = 256 << 10
	a, b := pair(t, p, long)
	var wc [4]verbs.WC
	wr, rr := make([]verbs.SendWR, 1), make([]verbs.RecvWR, 1)
	once := func(from, to *end, recv bool) {
		if recv {
			rr[0] = verbs.RecvWR{NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{to.sge(0, long)}}
			if _, st := to.qp.PostRecv(rr); st != ucs.OK {
				panic(st)
			}
		}
		if _, st := from.qp.PostSend(wr); st != ucs.OK {
			panic(st)
		}
		for sent, came := 0, 0; sent < 1 || recv && came < 1; {
			sent += from.poll(wc[:])
			came += to.poll(wc[:])
		}
	}
	for _, c := range []struct {
		name string
		op   verbs.Opcode
		n    int
	}{
		{"ping-pong of 8 bytes", verbs.OpSend, 8},
		{"ping-pong of 256 KB", verbs.OpSend, long},
		{"write of 8 bytes", verbs.OpWrite, 8},
		{"write of 256 KB", verbs.OpWrite, long},
		{"read of 8 bytes", verbs.OpRead, 8},
		{"read of 256 KB", verbs.OpRead, long},
	} {
		f := func() {
			wr[0] = verbs.SendWR{Op: c.op, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, c.n)}, Remote: b.mr.Addr(), RKey: b.mr.RKey()}
			once(a, b, c.op == verbs.OpSend)
			if c.op == verbs.OpSend {
				wr[0].SG[0] = b.sge(0, c.n)
				once(b, a, true)
			}
		}
		for range 50 {
			f()
		}
		before := value(t, a.device(), "device.tx_packets") + value(t, a.device(), "device.rx_packets")
		allocs := testing.AllocsPerRun(100, f)
		packets := value(t, a.device(), "device.tx_packets") + value(t, a.device(), "device.rx_packets") - before
		assert.Zero(t, allocs, c.name)
		t.Logf("%-20s %d packets at one end, %v allocations", c.name, packets/101, allocs)
	}
}

// poll takes completions, which have to be good.
func (e *end) poll(wc []verbs.WC) int {
	n := e.cq.Poll(wc)
	for i := range max(n, 0) {
		if wc[i].Status != verbs.WCSuccess {
			panic(wc[i].Status.String())
		}
	}
	if n < 0 {
		panic("completion queue overrun")
	}
	return n
}
