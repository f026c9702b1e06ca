package soft

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
)

// mostPackets is how many times the packets of a clean network a bad one may cost.
const mostPackets = 1.5

// TestSimPackets counts the packets that both sides send per megabyte, on a network
// with a round trip of 100 µs: as ever without faults, and not many more where one
// packet in a hundred is lost or one in fifty is late.
func TestSimPackets(t *testing.T) {
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpSend, verbs.OpRead} {
		for _, tc := range []struct {
			mtu   verbs.MTU
			size  int
			clean float64 // of a READ too, within 1 %
		}{
			{verbs.MTU1024, 8 << 10, 1152},
			{verbs.MTU1024, 64 << 10, 1040},
			{verbs.MTU1024, 1 << 20, 1033},
			{verbs.MTU4096, 8 << 10, 384},
			{verbs.MTU4096, 64 << 10, 272},
			{verbs.MTU4096, 1 << 20, 262},
		} {
			t.Run(fmt.Sprintf("%v of %d, mtu %d", op, tc.size, tc.mtu.Bytes()), func(t *testing.T) {
				run := func(l sim.Link) float64 {
					l.Latency, l.Bandwidth, l.Overhead = 50*time.Microsecond, 1.25e9, 58
					return simPackets(t, l, op, tc.mtu, tc.size)
				}
				clean := run(sim.Link{})
				lossy := run(sim.Link{Loss: 0.01})
				late := run(sim.Link{Reorder: 0.02, Jitter: 100 * time.Microsecond})
				t.Logf("packets per megabyte: %.0f clean, %.0f with loss (%.2f), %.0f with reordering (%.2f)", clean, lossy, lossy/clean, late, late/clean)
				assert.InEpsilon(t, tc.clean, clean, 0.01)
				assert.Less(t, lossy, mostPackets*clean, "packets with loss")
				assert.Less(t, late, mostPackets*clean, "packets with reordering")
			})
		}
	}
}

// TestSimHeavyLoss: a path that loses 7 % and reorders 10 % of the packets carries at
// least 4 MB a second, without a time-out. A probe does not wait for longer because the
// round trips that were measured first had retransmissions in them.
func TestSimHeavyLoss(t *testing.T) {
	l := sim.Link{Latency: 50 * time.Microsecond, Bandwidth: 1.25e9, Overhead: 58, Loss: 0.07, Reorder: 0.1, Jitter: 100 * time.Microsecond}
	for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpRead} {
		for seed := range uint64(3) {
			n, took := simTransfer(t, seed, l, op, verbs.MTU1024, 64<<10)
			t.Logf("%v, seed %d: %.0f packets per megabyte, %v", op, seed, n, took)
			assert.Less(t, took, 4*time.Second, "%v, seed %d", op, seed)
		}
	}
}

// simPackets returns how many packets both sides send per megabyte of messages of
// size bytes, 16 at a time.
func simPackets(t testing.TB, l sim.Link, op verbs.Opcode, mtu verbs.MTU, size int) float64 {
	n, _ := simTransfer(t, 1, l, op, mtu, size)
	return n
}

// simTransfer returns that, and how long 16 MB take.
func simTransfer(t testing.TB, seed uint64, l sim.Link, op verbs.Opcode, mtu verbs.MTU, size int) (packets float64, took time.Duration) {
	const total, depth = 16 << 20, 16
	w, err := newSimWorld(seed, 2, Config{})
	require.NoError(t, err)
	w.net.SetDefault(l)
	from, to := newSimSide(t, w.devs[0], size), newSimSide(t, w.devs[1], size)
	s := lossySetup()
	s.mtu, s.timeout, s.reads = mtu, longTimeout, [2]uint8{16, 16}
	require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], s))
	posted, done := 0, 0
	wcs := make([]verbs.WC, depth)
	for done < total/size {
		for posted < total/size && posted-done < depth {
			if op == verbs.OpSend {
				n, _ := to.qp.PostRecv([]verbs.RecvWR{{NumSG: 1, SG: [4]verbs.SGE{to.piece(0, size)}}})
				require.Equal(t, 1, n)
			}
			n, _ := from.qp.PostSend([]verbs.SendWR{{
				Op: op, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(0, size)}, Remote: to.mr.Addr(), RKey: to.mr.RKey(),
			}})
			require.Equal(t, 1, n)
			posted++
		}
		require.True(t, w.advance())
		to.cq.Poll(wcs)
		for _, wc := range wcs[:from.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			done++
		}
	}
	for _, d := range w.devs {
		require.Zero(t, value(t, d, "device.timeouts"))
	}
	return float64(w.net.Counts().Sent) / (total >> 20), w.net.Now().Sub(sim.Start)
}
