package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/verbs"
)

// TestSimGoodput writes over a network with a round trip of 20 µs: with one packet
// in a thousand lost, most of the throughput remains.
func TestSimGoodput(t *testing.T) {
	for _, tc := range []struct {
		name      string
		bandwidth float64 // bytes per second
		window    int
		least     float64 // of the throughput without loss
	}{
		{"10 Gbit/s", 1.25e9, 0, 0.8},
		{"25 Gbit/s", 3.1e9, 0, 0.8},
		{"50 Gbit/s, long window", 6.2e9, 128, 0.8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			whole, lossy := simGoodput(t, simNetwork(tc.bandwidth), tc.window, 1)
			t.Logf("%.2f GB/s without loss, %.2f with: %.0f %%", whole/1e9, lossy/1e9, 100*lossy/whole)
			assert.Greater(t, lossy, tc.least*whole)
		})
	}
}

// simNetwork has a round trip of 20 µs and a bandwidth in bytes per second.
func simNetwork(bandwidth float64) sim.Link {
	return sim.Link{Latency: 10 * time.Microsecond, Bandwidth: bandwidth, Overhead: 58}
}

// simGoodput gives bytes per second without loss, and with one packet in a
// thousand lost.
func simGoodput(t testing.TB, l sim.Link, window int, seed uint64) (whole, lossy float64) {
	whole = simWrites(t, l, window, seed)
	l.Loss = oneInAThousand
	return whole, simWrites(t, l, window, seed)
}

// simWrites gives bytes per second of messages of 1 MB, four at a time.
func simWrites(t testing.TB, l sim.Link, window int, seed uint64) float64 {
	const size, count, depth = 1 << 20, 60, 4
	w, err := newSimWorld(seed, 2, Config{Window: window})
	require.NoError(t, err)
	w.net.SetDefault(l)
	from, to := newSimSide(t, w.devs[0], size), newSimSide(t, w.devs[1], size)
	require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], lossySetup()))
	start, posted, done := w.net.Now(), 0, 0
	wcs := make([]verbs.WC, depth)
	for done < count {
		for posted < count && posted-done < depth {
			n, _ := from.qp.PostSend([]verbs.SendWR{{
				Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(0, size)}, Remote: to.mr.Addr(), RKey: to.mr.RKey(),
			}})
			require.Equal(t, 1, n)
			posted++
		}
		require.True(t, w.advance())
		for _, wc := range wcs[:from.cq.Poll(wcs)] {
			require.Equal(t, verbs.WCSuccess, wc.Status)
			done++
		}
	}
	return size * count / w.net.Now().Sub(start).Seconds()
}
