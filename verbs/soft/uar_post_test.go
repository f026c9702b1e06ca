package soft

import (
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// loop connects a new queue pair of the last context to another one that it makes there, in the
// same thread domain if there is one: polls of its completion queue drive both.
func (u *uarProgram) loop(sharing int) *end {
	d := u.ctxs[len(u.ctxs)-1]
	var es [2]*end
	for i := range es {
		var q *qp
		if i == 0 || sharing == 0 {
			q = u.queue(sharing, true)
		} else {
			c := es[0].cq
			v, err := es[0].pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c, Caps: verbs.QPCaps{MaxSend: 128, MaxInline: 128}})
			require.NoError(u.t, err)
			closeAtEnd(u.t, v)
			q = v.(*qp)
		}
		es[i] = &end{t: u.t, typ: verbs.RC, c: d, qp: q, cq: q.sendCQ, pd: q.pd, buf: make([]byte, 4096)}
		m, err := q.pd.Register(es[i].buf, verbs.MRConfig{Access: verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic})
		require.NoError(u.t, err)
		closeAtEnd(u.t, m)
		es[i].mr = m
	}
	es[0].connect(es[1])
	es[1].connect(es[0])
	return es[0]
}

// writeSelf returns a write of n bytes to the end's own memory, inline or not.
func (e *end) writeSelf(n int, f verbs.SendFlags) verbs.SendWR {
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: f, Remote: e.mr.Addr(), RKey: e.mr.RKey()}
	if f&verbs.SendInline != 0 && n <= verbs.InlineLen {
		wr.InlineLen = uint8(n)
	} else if n > 0 {
		wr.NumSG, wr.SG[0] = 1, e.sge(64, n)
	}
	return wr
}

// TestUARCounters counts what mlx5 does for each post.
func TestUARCounters(t *testing.T) {
	names := []string{"device.doorbells", "device.blueflames", "device.wqe_fetches", "device.payload_fetches", "device.cqes", "uar.locks", "device.locks"}
	const inline, signaled = verbs.SendInline, verbs.SendSignaled
	oneUUAR := MLX5{TotalUUARs: "2", LowLatencyUUARs: "0"} // 0 and 1, which all queue pairs share
	for _, tc := range []struct {
		name    string
		conf    MLX5
		sharing int
		wrs     func(e *end) []verbs.SendWR
		want    []uint64
	}{
		{"BlueFlame", MLX5{}, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{0, 1, 0, 0, 0, 0, 1}},
		{"payload", MLX5{}, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, 0)} }, []uint64{0, 1, 0, 1, 0, 0, 1}},
		{"list", MLX5{}, 0, func(e *end) []verbs.SendWR {
			return []verbs.SendWR{e.writeSelf(8, inline), e.writeSelf(8, 0), e.writeSelf(64, inline)}
		}, []uint64{1, 0, 3, 1, 0, 0, 1}},
		{"shut up", MLX5{ShutUpBF: true}, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{1, 0, 1, 0, 0, 0, 1}},
		{"shut up, thread", MLX5{ShutUpBF: true}, 1, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{1, 0, 1, 0, 0, 0, 1}},
		{"refused", MLX5{}, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{{Op: 99}} }, []uint64{0, 0, 0, 0, 0, 0, 1}},
		{"shared uUAR", oneUUAR, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{0, 1, 0, 0, 0, 1, 2}},
		{"shared uUAR, list", oneUUAR, 0, func(e *end) []verbs.SendWR {
			return []verbs.SendWR{e.writeSelf(8, inline), e.writeSelf(8, inline)}
		}, []uint64{1, 0, 2, 0, 0, 1, 2}},
		{"thread", oneUUAR, 2, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{0, 1, 0, 0, 0, 0, 1}},
		{"thread without lock", MLX5{NoQPLock: true}, 1, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{0, 1, 0, 0, 0, 0, 0}},
		{"no thread domain, with the setting", MLX5{NoQPLock: true}, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline)} }, []uint64{0, 1, 0, 0, 0, 0, 1}},
		{"atomic", MLX5{}, 0, func(e *end) []verbs.SendWR {
			wr := e.writeSelf(8, 0)
			wr.Op = verbs.OpFetchAdd
			return []verbs.SendWR{wr}
		}, []uint64{0, 1, 0, 0, 0, 0, 1}},
		{"completion", MLX5{}, 0, func(e *end) []verbs.SendWR { return []verbs.SendWR{e.writeSelf(8, inline|signaled)} }, []uint64{0, 1, 0, 0, 1, 0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			u := newUARProgram(t, tc.conf)
			u.context()
			e := u.loop(tc.sharing)
			read := func() (ns []uint64) {
				for _, n := range names {
					ns = append(ns, value(t, u.ctxs[0], n))
				}
				return ns
			}
			before := read()
			wrs := tc.wrs(e)
			n, _ := e.qp.PostSend(wrs)
			rang := read()
			for range 100 {
				e.cq.Poll(make([]verbs.WC, 4))
			}
			after := read()
			for i := range before {
				rang[i], after[i] = rang[i]-before[i], after[i]-before[i]
			}
			want := append([]uint64{}, tc.want...)
			assert.Equal(t, want[:4], after[:4], "doorbells, BlueFlames, WQE and payload fetches")
			assert.Equal(t, want[4], after[4], "CQEs")
			assert.Equal(t, want[5:], rang[5:], "locks")
			if tc.name != "refused" {
				assert.Equal(t, len(wrs), n)
			}
			require.NoError(t, e.qp.Close())
			for i, n := range names[:6] {
				assert.Equal(t, before[i]+after[i], value(t, u.ctxs[0], n), "%s outlives the queue pair", n)
			}
		})
	}
}

// TestUARFastPaths: a post on a fast path rings the doorbell and takes the locks, too.
func TestUARFastPaths(t *testing.T) {
	for _, c := range []Config{{Link: LinkInproc}, {Link: LinkUDP, Addr: localhost}} {
		t.Run(c.Link, func(t *testing.T) {
			c.Engine, c.Adapter = EngineInline, &MLX5{TotalUUARs: "2", LowLatencyUUARs: "0"}
			a, b := pair(t, New(c), 64)
			q, d := a.qp.(*qp), a.c.(*device)
			for want := range uint64(2) { // the first grows the queue, and takes the general path
				b.recv(want, 0, 64)
				before := q.lastPasses
				a.send(inlineSend(0)) // signaled
				if want == 1 && c.Link == LinkUDP {
					require.NotEqual(t, before, q.lastPasses, "postFast was not taken")
				}
				assert.Equal(t, want+1, value(t, d, "device.blueflames"))
				assert.Equal(t, want+1, value(t, d, "uar.locks"))
				assert.Zero(t, value(t, d, "device.doorbells"))
				a.completion(b)
				b.completion(a)
			}
		})
	}
}

// TestUARHighLatency: with the most low-latency uUARs the others are uUAR 0's, which has
// neither lock nor BlueFlame.
func TestUARHighLatency(t *testing.T) {
	u := newUARProgram(t, MLX5{TotalUUARs: "2", LowLatencyUUARs: "1"})
	u.context()
	u.queue(0, true)
	e := u.loop(0)
	require.Zero(t, e.qp.(*qp).uuar.number)
	e.send(e.writeSelf(8, verbs.SendInline))
	assert.Equal(t, uint64(1), value(t, u.ctxs[0], "device.doorbells"))
	assert.Zero(t, value(t, u.ctxs[0], "uar.locks"))
}

// TestBlueFlameSizes: the lengths of WQEs between which BlueFlame is used.
func TestBlueFlameSizes(t *testing.T) {
	const inline = verbs.SendInline
	for _, tc := range []struct {
		name string
		typ  verbs.QPType
		w    wqe
		want bool
	}{
		{"an empty send is a control segment", verbs.RC, wqe{op: verbs.OpSend}, false},
		{"an empty inline send", verbs.RC, wqe{op: verbs.OpSend, flags: inline}, false},
		{"an empty piece takes none", verbs.RC, wqe{op: verbs.OpSend, nsg: 1}, false},
		{"an empty write", verbs.RC, wqe{op: verbs.OpWrite}, true},
		{"one byte", verbs.RC, wqe{op: verbs.OpSend, flags: inline, n: 1}, true},
		{"a piece", verbs.RC, wqe{op: verbs.OpSend, nsg: 1, sg: [verbs.MaxSGE]verbs.SGE{{Len: 1}}}, true},
		{"a write of 220: 256", verbs.RC, wqe{op: verbs.OpWrite, flags: inline, n: 220}, true},
		{"a write of 221", verbs.RC, wqe{op: verbs.OpWrite, flags: inline, n: 221}, false},
		{"a datagram of 188: 256", verbs.UD, wqe{op: verbs.OpSend, flags: inline, n: 188}, true},
		{"a datagram of 189", verbs.UD, wqe{op: verbs.OpSend, flags: inline, n: 189}, false},
		{"an empty datagram", verbs.UD, wqe{op: verbs.OpSend}, true},
		{"a bind", verbs.RC, wqe{op: verbs.OpBindMW}, true},
	} {
		q := &qp{typ: tc.typ}
		assert.Equal(t, tc.want, q.fitsBlueFlame(&tc.w), tc.name)
	}
	assert.Equal(t, 16, int(wqeBytes[verbs.OpSend]))
}

// TestUARContention: two goroutines on queue pairs of one uUAR take its lock once for each
// post, no more and no less.
func TestUARContention(t *testing.T) {
	u := newUARProgram(t, MLX5{TotalUUARs: "2", LowLatencyUUARs: "0"})
	u.context()
	es := [2]*end{u.loop(0), u.loop(0)}
	require.Same(t, es[0].qp.(*qp).uuar, es[1].qp.(*qp).uuar)
	const posts = 20_000
	var all sync.WaitGroup
	for _, e := range es {
		all.Go(func() {
			wrs, wcs := []verbs.SendWR{e.writeSelf(8, verbs.SendInline)}, make([]verbs.WC, 4)
			for i := 0; i < posts; {
				n, st := e.qp.PostSend(wrs)
				if i += n; st == ucs.NoResource {
					e.cq.Poll(wcs)
				}
			}
		})
	}
	all.Wait()
	assert.Equal(t, uint64(len(es)*posts), value(t, u.ctxs[0], "uar.locks"))
	assert.Equal(t, uint64(len(es)*posts), value(t, u.ctxs[0], "device.blueflames")+value(t, u.ctxs[0], "device.doorbells"))
}

// TestNoQPLock: a thread domain drops the posters' lock. A goroutine that copies inline data
// while another one owns the queue pair is still visible to a region that closes.
func TestNoQPLock(t *testing.T) {
	u := newUARProgram(t, MLX5{NoQPLock: true})
	u.context()
	e := u.loop(1)
	q := e.qp.(*qp)
	e.send(e.writeSelf(8, verbs.SendInline)) // the queue grows
	require.True(t, q.lockPosts())
	assert.Zero(t, q.word.Load()&ownPost)
	assert.False(t, q.lockPosts(), "posting goes on while another goroutine owns it")
	q.unlockPosts()
	assert.True(t, q.held())

	wr := e.writeSelf(100, verbs.SendInline)
	d := q.d
	d.memoryUsers.remove(q)
	d.memoryUsers.lock.lock() // markMemoryUser waits
	var poster sync.WaitGroup
	poster.Go(func() { e.send(wr) })
	end, seen := time.Now().Add(10*time.Second), false
	for !seen && time.Now().Before(end) {
		seen = q.word.Load()&ownPost != 0
		runtime.Gosched()
	}
	d.memoryUsers.lock.unlock()
	poster.Wait()
	assert.True(t, seen)
	assert.Zero(t, q.word.Load()&ownPost)
	q.transmitAndRelease()
	assert.False(t, q.held())
	for value(t, d, "device.rx_bytes") < 108 {
		e.cq.Poll(nil)
	}
	assert.Zero(t, value(t, d, "device.locks"))
}

// BenchmarkAdapter is the time of a write of eight bytes, in process, in a thread domain
// without an adapter, and what more it takes with one. One goroutine drives both ends. The
// variants take turns, and the fastest turn of each counts.
func BenchmarkAdapter(b *testing.B) {
	variants := []struct {
		name    string
		conf    *MLX5
		sharing int
	}{
		{"without", nil, 1},
		{"thread", &MLX5{}, 1},
		{"no-qp-lock", &MLX5{NoQPLock: true}, 1},
		{"low-latency", &MLX5{}, 0},
		{"medium-latency", &MLX5{TotalUUARs: "2", LowLatencyUUARs: "0"}, 0},
	}
	ends, best := make([]*end, len(variants)), make([]time.Duration, len(variants))
	for i, v := range variants {
		u := &uarProgram{t: b, p: New(Config{Link: LinkInproc, Engine: EngineInline, Adapter: v.conf})}
		u.context()
		ends[i], best[i] = u.loop(v.sharing), math.MaxInt64
	}
	const turn = 1000
	b.ReportAllocs()
	for b.Loop() {
		for i, e := range ends {
			wrs, wcs := []verbs.SendWR{e.writeSelf(8, verbs.SendInline)}, make([]verbs.WC, 4)
			start := time.Now()
			for k := range turn {
				if k%16 == 15 {
					e.cq.Poll(wcs)
				}
				if n, st := e.qp.PostSend(wrs); n != 1 {
					b.Fatal(st)
				}
			}
			best[i] = min(best[i], time.Since(start))
		}
	}
	for i, v := range variants {
		ns := float64(best[i].Nanoseconds()) / turn
		if i > 0 {
			ns -= float64(best[0].Nanoseconds()) / turn
			v.name = "+" + v.name
		}
		b.ReportMetric(ns, v.name+"-ns")
	}
}
