package soft

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// oneInAThousand is the loss under which goodput is looked at.
const oneInAThousand = 0.001

// lossySetup is a connection whose time-out is 4 ms.
func lossySetup() *rcSetup {
	return &rcSetup{
		mtu: verbs.MTU4096, timeout: 10, retry: 7, rnrRetry: [2]uint8{7, 7}, rnrTimer: 1, reads: [2]uint8{1, 1}, access: allAccess, features: verbs.PeerProbe,
	}
}

// BenchmarkGoodput is the part of the throughput of RDMA writes that is left with
// one packet in a thousand lost, in both directions, on a round trip of 20 µs with
// an MTU of 4 KB: %kept. An operation is some megabytes without loss and then as
// many with it, so a disturbance meets both. On the simulator time is virtual; over
// UDP the fault layer delays and loses packet by packet.
func BenchmarkGoodput(b *testing.B) {
	b.Run("simulated", func(b *testing.B) {
		var m goodputMetric
		for seed := uint64(1); b.Loop(); seed++ {
			whole, lossy := simGoodput(b, simNetwork(3.1e9), 0, seed)
			m.add(1/whole, 1/lossy)
		}
		m.report(b, 1)
	})
	b.Run(LinkUDP, func(b *testing.B) {
		const count = 16
		whole, lossy := newWriter(b, 0), newWriter(b, oneInAThousand)
		whole.write(count) // warm
		lossy.write(count)
		var m goodputMetric
		for b.Loop() {
			m.add(whole.write(count), lossy.write(count))
		}
		m.report(b, count*writerSize)
		require.NotZero(b, value(b, lossy.from.c.(*device), "device.retransmits"), "nothing was lost")
	})
}

// goodputMetric sums the seconds that the same work took without and with loss.
type goodputMetric struct {
	whole, lossy float64
	runs         int
}

func (m *goodputMetric) add(whole, lossy float64) {
	m.whole += whole
	m.lossy += lossy
	m.runs++
}

// report tells the part that is kept, and the bytes per second, of runs of that
// many bytes.
func (m *goodputMetric) report(b *testing.B, bytes int) {
	b.ReportMetric(100*m.whole/m.lossy, "%kept")
	b.ReportMetric(float64(m.runs*bytes)/1e9/m.whole, "GB/s-lossless")
	b.ReportMetric(float64(m.runs*bytes)/1e9/m.lossy, "GB/s-lossy")
}

// writer writes into the memory of another device over UDP.
type writer struct {
	b        testing.TB
	from, to *end
	wr       []verbs.SendWR
}

// writerSize is the length of its messages.
const writerSize = 1 << 20

func newWriter(b testing.TB, loss float64) *writer {
	c := Config{Link: LinkUDP, Addr: localhost, Faults: &Faults{Loss: loss, Delay: 10 * time.Microsecond}}
	w := &writer{b: b, from: newEnd(b, New(c), verbs.RC, writerSize), to: newEnd(b, New(c), verbs.RC, writerSize)}
	require.NoError(b, connectRC(w.from.qp, w.to.qp, w.from.c.(*device), w.to.c.(*device), lossySetup()))
	w.wr = []verbs.SendWR{{
		Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{w.from.sge(0, writerSize)},
		Remote: w.to.mr.Addr(), RKey: w.to.mr.RKey(),
	}}
	return w
}

// write writes count messages, four at a time, while the target polls beside, and
// gives the seconds that it took.
func (w *writer) write(count int) float64 {
	const depth = 4
	var stop atomic.Bool
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for wcs := make([]verbs.WC, depth); !stop.Load(); {
			w.to.cq.Poll(wcs)
		}
	}()
	start, posted, done := ucs.Now(), 0, 0
	for wcs := make([]verbs.WC, depth); done < count; {
		if posted < count && posted-done < depth {
			n, _ := w.from.qp.PostSend(w.wr)
			posted += n
		}
		for _, wc := range wcs[:w.from.cq.Poll(wcs)] {
			require.Equal(w.b, verbs.WCSuccess, wc.Status)
			done++
		}
	}
	took := ucs.Now().Sub(start).Seconds()
	stop.Store(true)
	<-stopped
	return took
}
