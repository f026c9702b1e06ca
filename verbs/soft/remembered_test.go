package soft

import (
	"encoding/binary"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestMostReads: as many reads as the limits allow are under way at once.
func TestMostReads(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		p.conf.Limits.RdAtomic = limitOf("RdAtomic")
		a, b := newEnd(t, p, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
		most := uint8(p.conf.Limits.RdAtomic)
		for _, c := range [2][2]*end{{a, b}, {b, a}} {
			c[0].connectAs(c[1], verbs.QPAttr{MaxRdAtomic: most, MaxDestRdAtomic: most, Timeout: 14, RetryCnt: 7})
		}
		for i := range 2*int(most) + 1 {
			a.send(verbs.SendWR{ID: uint64(i), Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey()})
		}
		for i := range 2*int(most) + 1 {
			w := a.completion(b)
			require.Equal(t, verbs.WCSuccess, w.Status)
			require.Equal(t, uint64(i), w.ID)
		}
	})
}

// TestNoReads: a queue pair that may have no read or atomic operation under way
// fails one in its turn, and does not wait for ever.
func TestNoReads(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		a, b := newEnd(t, p, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
		for _, c := range [2][2]*end{{a, b}, {b, a}} {
			c[0].connectAs(c[1], verbs.QPAttr{MaxDestRdAtomic: 1, Timeout: 14, RetryCnt: 7})
		}
		for id, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead, verbs.OpWrite} {
			a.send(verbs.SendWR{ID: uint64(id), Op: op, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey()})
		}
		for id, want := range []verbs.WCStatus{verbs.WCSuccess, verbs.WCLocQPOpErr, verbs.WCFlushErr} {
			w := a.completion(b)
			require.Equal(t, uint64(id), w.ID)
			require.Equal(t, want, w.Status)
		}
	})
}

// limitOf is the largest value of a limit.
func limitOf(name string) int {
	for _, l := range limits {
		if l.name == name {
			return l.max
		}
	}
	return 0
}

// TestRememberedAtomics: atomic operations whose answers were lost are answered
// again, also where the number of those that are remembered changed meanwhile.
func TestRememberedAtomics(t *testing.T) {
	var lose atomic.Int32
	f := Faults{Hook: func(p *PacketInfo) Verdict {
		return Verdict{Drop: !p.Received && p.Op == wire.AtomicAcknowledge && lose.Add(-1) >= 0}
	}}
	p := New(Config{Link: LinkInproc, Engine: EngineInline, Faults: &f})
	a, b := newEnd(t, p, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
	for _, c := range [2][2]*end{{a, b}, {b, a}} {
		c[0].connectAs(c[1], verbs.QPAttr{MaxRdAtomic: 2, MaxDestRdAtomic: 3, Timeout: 10, RetryCnt: 7})
	}
	add := func(id uint64) {
		a.send(verbs.SendWR{ID: id, Op: verbs.OpFetchAdd, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(int(id)*8, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(), Swap: 1})
	}
	add(0)
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	lose.Store(2)
	add(1)
	add(2)
	var wc [1]verbs.WC
	for until := ucs.Now().Add(10e9); lose.Load() > 0; {
		require.True(t, ucs.Now().Before(until))
		require.Zero(t, b.cq.Poll(wc[:]))
	}
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateSQD}, verbs.AttrState))
	require.NoError(t, b.qp.Modify(&verbs.QPAttr{State: verbs.StateSQD, MaxDestRdAtomic: 2}, verbs.AttrState|verbs.AttrMaxDestRdAtomic))
	for id := range uint64(3) {
		if id > 0 {
			require.Equal(t, verbs.WC{ID: id, Op: verbs.WCFetchAdd, Len: 8, QPN: a.qp.QPN()}, a.completion(b))
		}
		assert.Equal(t, id, binary.NativeEndian.Uint64(a.buf[id*8:]))
	}
	assert.Equal(t, uint64(3), binary.NativeEndian.Uint64(b.buf))
}

// TestAskedTwice: who asks again, and then gets all answers to its first requests,
// may ask for as many more before the second ones have been answered.
func TestAskedTwice(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		p.conf.Engine = EngineInline
		a, b := newEnd(t, p, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
		const most = 3
		for _, c := range [2][2]*end{{a, b}, {b, a}} {
			c[0].connectAs(c[1], verbs.QPAttr{MaxRdAtomic: most, MaxDestRdAtomic: most, Timeout: 20, RetryCnt: 7})
		}
		add := func(id uint64) {
			a.send(verbs.SendWR{ID: id, Op: verbs.OpFetchAdd, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(int(id)*8, 8)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(), Swap: 1})
		}
		add(0)
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		for id := range uint64(2 * most) {
			add(id + 1) // the second half waits for answers to the first
		}
		da, db := a.device(), b.device()
		for end := time.Now().Add(time.Minute); b.qp.(*qp).rsp.numSaved < most+1; db.progress() {
			require.True(t, time.Now().Before(end))
			da.tick(da.clock())
			da.own.flushDirty() // but takes no answers
		}
		late := da.clock()
		for range 2 { // begins to count, and ends
			late = late.Add(5 * time.Second)
			da.own.runTimers(late)
		}
		for id := range uint64(2 * most) {
			require.Equal(t, verbs.WC{ID: id + 1, Op: verbs.WCFetchAdd, Len: 8, QPN: a.qp.QPN()}, a.completion(b))
			assert.Equal(t, id+1, binary.NativeEndian.Uint64(a.buf[(id+1)*8:]))
		}
		assert.Equal(t, uint64(2*most+1), binary.NativeEndian.Uint64(b.buf))
	})
}
