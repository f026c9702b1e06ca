package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// longTimeout is the code of two seconds.
const longTimeout = 19

// TestProbes sends messages one by one where a tenth of all packets is lost: with
// probes nobody waits for the time-out, which is two seconds.
func TestProbes(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			w, err := newSimWorld(seed, 2, Config{})
			require.NoError(t, err)
			l := lossy
			l.Loss = 0.1
			w.net.SetDefault(l)
			stream(t, w.devs[0], w.devs[1], w.net.Rand(), messages{100, longTimeout, verbs.PeerProbe}, func() {
				w.advance()
				require.Less(t, w.net.Now().Sub(sim.Start), 2*time.Second)
			})
			for _, d := range w.devs {
				require.Zero(t, value(t, d, "device.timeouts"))
			}
		})
	}
}

// TestProbesKnowTheRoundTrip: on a long way they come later, so that nothing goes
// twice without need.
func TestProbesKnowTheRoundTrip(t *testing.T) {
	w, err := newSimWorld(1, 2, Config{})
	require.NoError(t, err)
	w.net.SetDefault(sim.Link{Latency: 20 * time.Millisecond})
	retransmits := uint64(0)
	for i := range 2 {
		stream(t, w.devs[0], w.devs[1], w.net.Rand(), messages{1 + 99*i, longTimeout, verbs.PeerProbe}, func() {
			w.advance()
			require.Less(t, w.net.Now().Sub(sim.Start), 100*time.Second)
		})
		retransmits = value(t, w.devs[0], "device.retransmits")
	}
	require.Less(t, retransmits, uint64(20), "of 101 messages: those of a round trip that is not known yet")
}

// TestProbeWaits: longer each time, and never for less than the floor.
func TestProbeWaits(t *testing.T) {
	p := probe{enabled: true}
	require.Equal(t, probeFloor, p.interval(probeFloor))
	p.startRTT(7, 1000)
	p.acked(6, 2000)
	require.Zero(t, p.srtt, "another packet")
	p.acked(7, 1000+ucs.Time(10*time.Millisecond))
	require.Equal(t, ucs.Time(40*time.Millisecond), p.interval(probeFloor), "twice the round trip and four deviations")
	p.count = 3
	require.Equal(t, ucs.Time(320*time.Millisecond), p.interval(probeFloor))
	p.startRTT(9, 1)
	p.cancelRTT()
	p.acked(9, ucs.Time(time.Second))
	require.Equal(t, ucs.Time(10*time.Millisecond), p.srtt, "what was sent more than once says nothing of the round trip")
	require.Zero(t, p.count)
}

// TestAloneAfterTimeout: what a peer that is slow has not acknowledged in time goes
// again one packet at a time, or it would have ever more to take. All comes in the end.
func TestAloneAfterTimeout(t *testing.T) {
	p := New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline})
	const n = 30
	a, b := newEnd(t, p, verbs.RC, 64), newEnd(t, p, verbs.RC, 64)
	at := verbs.QPAttr{MinRNRTimer: 1, Timeout: 12, RetryCnt: 7, PeerFeatures: verbs.PeerProbe} // 17 ms
	a.connectAs(b, at)
	b.connectAs(a, at)
	for i := range uint64(n) {
		a.send(verbs.SendWR{
			ID: i, Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1,
			SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 64)}, Remote: b.mr.Addr(), RKey: b.mr.RKey(),
		})
	}
	d, wc := a.device(), make([]verbs.WC, 1)
	for value(t, d, "device.timeouts") < 3 {
		require.Zero(t, a.cq.Poll(wc))
	}
	require.LessOrEqual(t, value(t, d, "device.tx_packets"), uint64(2*n))
	for i := range uint64(n) {
		w := a.completion(b)
		require.Equal(t, [2]any{i, verbs.WCSuccess}, [2]any{w.ID, w.Status})
	}
}
