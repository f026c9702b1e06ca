package soft

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

// TestUntimely: time-outs that come while all is well, at any moment, between any
// two steps of either end, lose no operation, carry none out twice and fail none.
func TestUntimely(t *testing.T) {
	seeds := 300
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		untimely(t, uint64(seed))
	}
}

func untimely(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	p := New(Config{Link: LinkInproc, Engine: EngineInline, Depth: 16 << r.IntN(5)})
	a, b := newEnd(t, p, verbs.RC, 1<<16), newEnd(t, p, verbs.RC, 1<<16)
	for _, c := range [2][2]*end{{a, b}, {b, a}} {
		c[0].connectAs(c[1], verbs.QPAttr{MaxRdAtomic: 2, MaxDestRdAtomic: 2, MinRNRTimer: 1, Timeout: 20, RetryCnt: 7, RNRRetry: 7})
	}
	now := a.device().clock()
	ends := [2]*end{a, b}
	var posted, done, came, owed, adds [2]int
	for range 64 {
		b.recv(0, 0, 1<<16)
		a.recv(0, 0, 1<<16)
	}
	take := func(i int) {
		e := ends[i]
		var wc [8]verbs.WC
		n := e.cq.Poll(wc[:1+r.IntN(8)])
		require.GreaterOrEqual(t, n, 0)
		for _, w := range wc[:n] {
			require.Equal(t, verbs.WCSuccess, w.Status, "seed %d: %+v", seed, w)
			if w.Op == verbs.WCRecv || w.Op == verbs.WCRecvImm {
				came[i]++
				e.recv(0, 0, 1<<16)
				continue
			}
			require.Equal(t, uint64(done[i]), w.ID, "seed %d", seed)
			done[i]++
		}
	}
	post := func(i int) {
		if posted[i]-done[i] >= 60 || owed[1-i]-came[1-i] >= 60 {
			return
		}
		e, o := ends[i], ends[1-i]
		wr := verbs.SendWR{ID: uint64(posted[i]), Flags: verbs.SendSignaled, Remote: o.mr.Addr() + 1<<15, RKey: o.mr.RKey()}
		n := r.IntN(3)
		switch r.IntN(6) {
		case 0:
			wr.Op, wr.Swap, wr.NumSG = verbs.OpFetchAdd, 1, 1
			wr.SG[0] = e.sge(8, 8)
			adds[i]++
		case 1:
			wr.Op, wr.NumSG = verbs.OpRead, 1
			wr.SG[0] = e.sge(1024, n*5000)
		case 2:
			wr.Op, wr.InlineLen = verbs.OpWrite, 8
			wr.Remote += 8
			wr.Flags |= verbs.SendInline
		case 3:
			wr.Op, wr.NumSG = verbs.OpWrite, 1
			wr.Remote += 64
			wr.SG[0] = e.sge(0, n*5000)
		default:
			wr.Op, wr.InlineLen = verbs.OpSend, uint8(n*8)
			wr.Flags |= verbs.SendInline
			owed[1-i]++
		}
		posted[i]++
		e.send(wr)
	}
	step := func() {
		i := r.IntN(2)
		d := ends[i].device()
		switch r.IntN(8) {
		case 0, 1, 2:
			post(i)
		case 3:
			now += 30_000_000_000
			d.own.now.Store(int64(now))
			d.own.runTimers(now)
		case 4:
			now += 30_000
			d.own.now.Store(int64(now))
			d.own.runTimers(now)
		case 5:
			d.own.flushDirty()
		default:
			take(i)
		}
	}
	for range 100 + r.IntN(400) {
		step()
		for _, e := range ends { // a time-out too many is no fault here
			e.qp.(*qp).req.retries = 7
		}
	}
	all := func() bool { return done == posted && came[0] == owed[0] && came[1] == owed[1] }
	for end := time.Now().Add(20 * time.Second); !all(); {
		require.True(t, time.Now().Before(end), "seed %d: posted %v done %v, sent %v came %v", seed, posted, done, owed, came)
		take(0)
		take(1)
		for _, e := range ends {
			now += 30_000
			e.device().own.now.Store(int64(now))
			e.device().own.runTimers(now)
		}
	}
	for i, e := range ends {
		require.Equal(t, uint64(adds[1-i]), binary.NativeEndian.Uint64(e.buf[1<<15:]), "seed %d", seed)
	}
}
