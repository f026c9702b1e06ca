package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// TestRefusedBehindRead: the peer does not run for 50 ms, then it answers a READ and
// refuses the WRITE behind it. The requester, whose probes have gone back meanwhile,
// takes both. Where the READ's answer is lost, the READ ends with the refusal. Both
// happen in the time of a round trip, not after all retries.
func TestRefusedBehindRead(t *testing.T) {
	const pause = 50 * time.Millisecond
	for name, tc := range map[string]struct {
		size int
		lose func(op wire.Opcode) bool
		want []verbs.WCStatus
	}{
		"answered":          {8, nil, []verbs.WCStatus{verbs.WCSuccess, verbs.WCRemAccessErr}},
		"answered, long":    {20_000, nil, []verbs.WCStatus{verbs.WCSuccess, verbs.WCRemAccessErr}},
		"answer lost":       {8, func(op wire.Opcode) bool { return op == wire.ReadResponseOnly }, []verbs.WCStatus{verbs.WCRemAccessErr, verbs.WCFlushErr}},
		"last part is lost": {20_000, func(op wire.Opcode) bool { return op == wire.ReadResponseLast }, []verbs.WCStatus{verbs.WCRemAccessErr, verbs.WCFlushErr}},
	} {
		t.Run(name, func(t *testing.T) {
			var w *simWorld
			f := &Faults{Hook: func(p *PacketInfo) Verdict {
				if p.Received || w.net.Now() >= sim.Start.Add(pause) {
					return Verdict{Drop: tc.lose != nil && !p.Received && tc.lose(p.Op)}
				}
				return Verdict{Delay: sim.Start.Add(pause).Sub(w.net.Now())}
			}}
			var err error
			w, err = newSimWorld(1, 2, Config{Faults: f})
			require.NoError(t, err)
			w.net.SetDefault(sim.Link{Latency: 5 * time.Microsecond})
			from, to := newSimSide(t, w.devs[0], 1<<16), newSimSide(t, w.devs[1], 1<<16)
			require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], &rcSetup{
				mtu: verbs.MTU1024, timeout: 18, retry: 7, rnrTimer: 1, reads: [2]uint8{16, 16}, access: allAccess, features: verbs.PeerProbe,
			}))
			for i, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead, verbs.OpWrite} {
				key, flags := to.mr.RKey(), verbs.SendSignaled
				switch i {
				case 0:
					flags = 0 // the READ's answer alone acknowledges it
				case 2:
					key ^= 0xff00 // of a region that was closed
				}
				k, _ := from.qp.PostSend([]verbs.SendWR{{
					ID: uint64(i), Op: op, Flags: flags, NumSG: 1, SG: [4]verbs.SGE{from.piece(0, tc.size)}, Remote: to.mr.Addr(), RKey: key,
				}})
				require.Equal(t, 1, k)
			}
			var got []verbs.WCStatus
			wcs := make([]verbs.WC, 4)
			for len(got) < 2 {
				require.True(t, w.advance())
				for _, wc := range wcs[:from.cq.Poll(wcs)] {
					got = append(got, wc.Status)
				}
			}
			require.Equal(t, tc.want, got)
			require.Less(t, w.net.Now().Sub(sim.Start), pause+20*time.Millisecond)
			require.NotZero(t, value(t, w.devs[0], "device.retransmits"), "no probe went")
		})
	}
}
