package soft

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// BenchmarkWriteAgainstCopy is RDMA writes of 64 KB within the process, one after
// the other by one thread that drives both ends, and copies of as much between the
// same buffers in turns with them: %copy is the speed of a write as a part of that
// of a copy.
func BenchmarkWriteAgainstCopy(b *testing.B) {
	const n, turn = 64 << 10, 64
	x, y := pair(b, New(Config{Link: LinkInproc}), n)
	wrs := []verbs.SendWR{{
		Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{x.sge(0, n)}, Remote: y.mr.Addr(), RKey: y.mr.RKey(),
	}}
	var wc [1]verbs.WC
	var writes, copies ucs.Time
	b.ReportAllocs()
	for b.Loop() {
		start := ucs.Now()
		for range turn {
			x.qp.PostSend(wrs)
			for x.cq.Poll(wc[:]) == 0 {
				y.cq.Poll(wc[:])
			}
			if wc[0].Status != verbs.WCSuccess {
				b.Fatal(wc[0].Status)
			}
		}
		middle := ucs.Now()
		for range turn {
			copy(y.buf, x.buf)
		}
		writes += middle - start
		copies += ucs.Now() - middle
	}
	require.NotZero(b, writes)
	b.ReportMetric(100*float64(copies)/float64(writes), "%copy")
	b.ReportMetric(float64(writes)/float64(turn*b.N), "ns/write")
	b.ReportMetric(float64(copies)/float64(turn*b.N), "ns/copy")
}
