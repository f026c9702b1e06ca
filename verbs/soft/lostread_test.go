package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestLostReadAnswer: one answer packet of 64 READs is lost between two soft devices.
// The requester goes back once: there are no more than 32 requests beyond those of an
// undisturbed run.
func TestLostReadAnswer(t *testing.T) {
	for _, tc := range []struct {
		mtu  verbs.MTU
		size int
	}{{verbs.MTU4096, 8}, {verbs.MTU4096, 4096}, {verbs.MTU1024, 10_000}, {verbs.MTU256, 10_000}, {verbs.MTU256, 50_000}} {
		for _, features := range []uint32{0, verbs.PeerProbe} {
			t.Run(fmt.Sprintf("%d bytes, MTU %v, features %d", tc.size, tc.mtu, features), func(t *testing.T) {
				clean := lostReads(t, tc.mtu, tc.size, features)
				for _, lost := range [][]int{{0}, {40}, {-1}, {10, 11}, {30, 500}} {
					got := lostReads(t, tc.mtu, tc.size, features, lost...)
					require.LessOrEqual(t, got.requests, clean.requests+32*len(lost), "lost %v", lost)
					require.LessOrEqual(t, got.answers, 2*clean.answers+64, "lost %v", lost)
					require.Less(t, got.took, clean.took+time.Duration(len(lost))*20*time.Millisecond, "lost %v", lost)
				}
			})
		}
	}
}

// readCounts is what READs took.
type readCounts struct {
	requests, answers int
	took              time.Duration
}

// lostReads reads 64 times size bytes. It loses the answer packets of those numbers;
// negative ones count from the end of an undisturbed run.
func lostReads(t *testing.T, mtu verbs.MTU, size int, features uint32, lost ...int) (n readCounts) {
	all := 64 * max(1, (size+mtu.Bytes()-1)/mtu.Bytes())
	f := &Faults{Hook: func(p *PacketInfo) Verdict {
		if p.Received {
			return Verdict{}
		}
		switch p.Op.Info().Kind {
		case wire.KindReadRequest:
			n.requests++
		case wire.KindReadResponse:
			n.answers++
			for _, k := range lost {
				if n.answers-1 == k || n.answers-1 == k+all-1 && k < 0 {
					return Verdict{Drop: true}
				}
			}
		default:
		}
		return Verdict{}
	}}
	w, err := newSimWorld(1, 2, Config{Faults: f})
	require.NoError(t, err)
	w.net.SetDefault(sim.Link{Latency: 5 * time.Microsecond, Bandwidth: 1.25e9})
	from, to := newSimSide(t, w.devs[0], 64*size), newSimSide(t, w.devs[1], 64*size)
	for i := range to.buf {
		to.buf[i] = byte(i * 7 / 3)
	}
	require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], &rcSetup{
		mtu: mtu, psn: [2]verbs.PSN{0xfffff0, 5}, timeout: 12, retry: 7, rnrRetry: [2]uint8{7, 7}, rnrTimer: 1,
		reads: [2]uint8{16, 16}, access: allAccess, features: features,
	}))
	start := w.net.Now()
	for i := range 64 {
		k, _ := from.qp.PostSend([]verbs.SendWR{{
			ID: uint64(i), Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(i*size, size)},
			Remote: to.mr.Addr() + uint64(i*size), RKey: to.mr.RKey(),
		}})
		require.Equal(t, 1, k)
	}
	wcs := make([]verbs.WC, 16)
	for done := 0; done < 64; {
		require.True(t, w.advance())
		for _, wc := range wcs[:from.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			require.EqualValues(t, done, wc.ID)
			done++
		}
		require.Less(t, w.net.Now().Sub(start), 10*time.Second)
	}
	require.Equal(t, to.buf, from.buf)
	n.took = w.net.Now().Sub(start)
	return n
}
