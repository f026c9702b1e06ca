package soft

import (
	"bytes"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestLongReads: reads of more than the window are asked for in parts, in order,
// beside others, by one that may have a single read under way as by one with many.
func TestLongReads(t *testing.T) {
	overLinks(t, func(t *testing.T, p *Provider) {
		for _, most := range []uint8{1, 2, 16} {
			const size = 3<<20 + 5
			a, b := newEnd(t, p, verbs.RC, size), newEnd(t, p, verbs.RC, size)
			for _, c := range [2][2]*end{{a, b}, {b, a}} {
				c[0].connectAs(c[1], verbs.QPAttr{MaxRdAtomic: most, MaxDestRdAtomic: most, Timeout: 14, RetryCnt: 7})
			}
			for i := range b.buf {
				b.buf[i] = byte(i * 7 / 3)
			}
			for id, n := range []int{2 << 20, 8, 1<<20 - 8, 0, 5} {
				off := []int{0, 2 << 20, 2<<20 + 8, 0, 3 << 20}[id]
				a.send(verbs.SendWR{
					ID: uint64(id), Op: verbs.OpRead, Flags: verbs.SendSignaled | verbs.SendFence*verbs.SendFlags(id&1),
					NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(off, n)}, Remote: b.mr.Addr() + uint64(off), RKey: b.mr.RKey(),
				})
			}
			for id := range uint64(5) {
				w := a.completion(b)
				require.Equal(t, [2]uint64{id, uint64(verbs.WCSuccess)}, [2]uint64{w.ID, uint64(w.Status)})
			}
			require.True(t, bytes.Equal(b.buf, a.buf))
		}
	})
}

// TestReadWindow: no more answers come at once than the window says, whoever
// reads however much.
func TestReadWindow(t *testing.T) {
	var asked, answered, worst atomic.Int64
	f := Faults{Hook: func(p *PacketInfo) Verdict {
		switch {
		case p.Received:
		case p.Op == wire.ReadRequest:
			asked.Add((int64(p.Packet.DMALen) + 4095) / 4096)
			worst.Store(max(worst.Load(), asked.Load()-answered.Load()))
		case p.Op.Info().Kind == wire.KindReadResponse:
			answered.Add(1)
		}
		return Verdict{}
	}}
	a, b := pair(t, New(Config{Link: LinkInproc, Engine: EngineInline, Faults: &f}), 4<<20)
	began := ucs.Now()
	a.send(verbs.SendWR{Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, len(a.buf))}, Remote: b.mr.Addr(), RKey: b.mr.RKey()})
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status, "after %d ns", ucs.Now()-began)
	require.Equal(t, int64(1024), answered.Load())
	require.LessOrEqual(t, worst.Load(), int64(defaultWindow))
	require.Greater(t, worst.Load(), int64(defaultWindow/2), "the window is used")
}
