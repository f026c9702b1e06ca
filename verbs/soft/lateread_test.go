package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
)

// TestReadRepeatedLate: a read that was answered, and whose packet comes a second
// time when the memory is gone, ends neither side.
func TestReadRepeatedLate(t *testing.T) {
	for seed := range uint64(20) {
		w, err := newSimWorld(seed, 2, Config{})
		require.NoError(t, err)
		w.net.SetDefault(sim.Link{Latency: 5 * time.Microsecond, Duplicate: 1, Jitter: time.Millisecond})
		from, to := newSimSide(t, w.devs[0], 5000), newSimSide(t, w.devs[1], 5000)
		require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], &rcSetup{
			mtu: verbs.MTU1024, timeout: 14, retry: 7, rnrTimer: 1, access: allAccess, reads: [2]uint8{4, 4},
		}))
		do := func(op verbs.Opcode, n int) {
			k, _ := from.qp.PostSend([]verbs.SendWR{{
				Op: op, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(0, n)}, Remote: to.mr.Addr(), RKey: to.mr.RKey(),
			}})
			require.Equal(t, 1, k)
			var wcs [1]verbs.WC
			for from.cq.Poll(wcs[:]) == 0 {
				require.True(t, w.advance())
			}
			require.Equal(t, verbs.WCSuccess, wcs[0].Status, "seed %d: %v", seed, op)
		}
		do(verbs.OpRead, 5000)
		require.NoError(t, to.mr.Close())
		for end := w.net.Now().Add(5 * time.Millisecond); w.net.Now().Before(end) && w.advance(); {
		}
		do(verbs.OpWrite, 0) // which takes no memory
	}
}
