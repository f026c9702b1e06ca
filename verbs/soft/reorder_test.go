package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// gapRun is one write of 100 packets on a network with a round trip of 20 µs whose
// faults are chosen.
type gapRun struct {
	sent     map[verbs.PSN]int // requests, by PSN
	naks     []verbs.PSN
	requests int
	took     time.Duration
}

// runGap runs it. sent says what becomes of the n-th transmission of a request, n
// counted from 1, at its sender, came at its receiver, and nak of the n-th NAK.
func runGap(t *testing.T, features uint32, sent, came func(psn verbs.PSN, n int) Verdict, nak func(n int) Verdict) *gapRun {
	const packets = 100
	r := &gapRun{sent: make(map[verbs.PSN]int)}
	w, err := newSimWorld(1, 2, Config{Faults: &Faults{Hook: func(p *PacketInfo) Verdict {
		switch {
		case p.Received && p.Op != wire.Acknowledge:
			return came(p.PSN, r.sent[p.PSN])
		case p.Received:
		case p.Syndrome == wire.NakSequence:
			r.naks = append(r.naks, p.PSN)
			return nak(len(r.naks))
		case p.Op != wire.Acknowledge:
			r.requests++
			r.sent[p.PSN]++
			return sent(p.PSN, r.sent[p.PSN])
		}
		return Verdict{}
	}}})
	require.NoError(t, err)
	w.net.SetDefault(sim.Link{Latency: 10 * time.Microsecond, Bandwidth: 3e9, Overhead: 58})
	const size = packets * 1024
	from, to := newSimSide(t, w.devs[0], size), newSimSide(t, w.devs[1], size)
	s := lossySetup()
	s.mtu, s.timeout, s.features = verbs.MTU1024, longTimeout, features
	require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], s))
	for i := range from.buf {
		from.buf[i] = byte(i / 1024)
	}
	n, _ := from.qp.PostSend([]verbs.SendWR{{
		Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(0, size)}, Remote: to.mr.Addr(), RKey: to.mr.RKey(),
	}})
	require.Equal(t, 1, n)
	var wcs [1]verbs.WC
	for from.cq.Poll(wcs[:]) == 0 {
		require.True(t, w.advance())
		require.Less(t, w.net.Now().Sub(sim.Start), time.Second)
	}
	r.took = w.net.Now().Sub(sim.Start)
	require.Equal(t, verbs.WCSuccess, wcs[0].Status)
	require.Equal(t, from.buf, to.buf)
	q := to.qp.(*qp)
	require.Empty(t, q.rsp.reorder.packets)
	require.Zero(t, q.rsp.reorder.bytes)
	require.Equal(t, noGap, q.rsp.gap)
	return r
}

func passes(int) Verdict { return Verdict{} }

func arrives(verbs.PSN, int) Verdict { return Verdict{} }

// lost is a fault that loses the first transmissions of some requests.
func lost(psns ...verbs.PSN) func(psn verbs.PSN, n int) Verdict {
	return func(psn verbs.PSN, n int) (v Verdict) {
		for _, p := range psns {
			v.Drop = v.Drop || p == psn && n == 1
		}
		return v
	}
}

// TestGapAlone: of what was sent behind a lost request nothing is sent again.
func TestGapAlone(t *testing.T) {
	r := runGap(t, verbs.PeerProbe, lost(10, 40, 98), arrives, passes)
	require.Equal(t, 103, r.requests)
	require.Equal(t, []verbs.PSN{10, 40, 98}, r.naks)
}

// TestGapBurst: of a burst that was lost the retransmissions double.
func TestGapBurst(t *testing.T) {
	burst := make([]verbs.PSN, 20)
	for i := range burst {
		burst[i] = verbs.PSN(10 + i)
	}
	r := runGap(t, verbs.PeerProbe, lost(burst...), arrives, passes)
	require.Equal(t, []verbs.PSN{10, 11, 13, 17, 25}, r.naks)
	require.Equal(t, 100+1+2+4+8+16, r.requests)
}

// TestGapLate: a request that others overtake by a little costs nothing, and it makes no
// difference whether those have AckReq.
func TestGapLate(t *testing.T) {
	r := runGap(t, verbs.PeerProbe, arrives, func(psn verbs.PSN, _ int) (v Verdict) {
		if psn == 10 || psn == 50 || psn == 98 {
			v.Delay = time.Microsecond // two others pass, or the last one
		}
		return v
	}, passes)
	require.Equal(t, 100, r.requests)
	require.Empty(t, r.naks)
}

// TestGapTwice: a request that comes both late and again is executed once.
func TestGapTwice(t *testing.T) {
	r := runGap(t, verbs.PeerProbe, arrives, func(psn verbs.PSN, n int) (v Verdict) {
		if psn == 10 && n == 1 {
			v.Delay = 30 * time.Microsecond
		}
		return v
	}, passes)
	require.Equal(t, 101, r.requests)
	require.Equal(t, []verbs.PSN{10}, r.naks)
}

// TestGapAtTheEnd: where fewer than three follow, the NAK goes after a while.
func TestGapAtTheEnd(t *testing.T) {
	r := runGap(t, verbs.PeerProbe, lost(98), arrives, passes)
	require.Equal(t, 101, r.requests)
	require.Equal(t, []verbs.PSN{98}, r.naks)
	require.Less(t, r.took, 200*time.Microsecond, "less than a probe takes")
}

// TestGapNakLost: a lost NAK costs a probe, and no time-out.
func TestGapNakLost(t *testing.T) {
	r := runGap(t, verbs.PeerProbe, lost(10), arrives, func(n int) Verdict { return Verdict{Drop: n == 1} })
	require.Equal(t, 102, r.requests, "the probe, and what is missing")
	require.Equal(t, []verbs.PSN{10, 10}, r.naks)
}

// TestGapForeign: towards another peer the device goes by the specification. A NAK
// at once, requests out of order dropped, and all sent again from the missing one on.
func TestGapForeign(t *testing.T) {
	r := runGap(t, 0, lost(10), arrives, passes)
	require.Equal(t, []verbs.PSN{10}, r.naks)
	for psn, n := range r.sent {
		require.True(t, n == 1 || psn >= 10, "packet %d was sent %d times", psn, n)
	}
	require.Greater(t, r.requests, 110)
}

// TestGapNakTwice: a NAK that comes twice costs one retransmission.
func TestGapNakTwice(t *testing.T) {
	r := runGap(t, verbs.PeerProbe, lost(10, 40), arrives, func(int) Verdict { return Verdict{Duplicate: true} })
	require.Equal(t, 102, r.requests)
	require.Equal(t, []verbs.PSN{10, 40}, r.naks)
}
