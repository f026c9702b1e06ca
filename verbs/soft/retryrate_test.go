package soft

import (
	"fmt"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/internal/sim"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestRetryRate: where a fifth of all packets is lost, connections end as retry_cnt
// predicts, and with RETRY_EXC alone.
//
// A try is lost where the request is, or its acknowledgement: q = 1 - (1-loss)². A
// message has 1 + retry_cnt time-outs, and in each of them one try, and one more for
// each probe: it is given up with the chance q^tries. A connection ends at the first
// of its messages that is, one at a time: p = 1 - (1-q^tries)^messages. So many
// messages are sent that retry_cnt ± 1 lies far off.
func TestRetryRate(t *testing.T) {
	const loss = 0.2
	q := 1 - (1-loss)*(1-loss)
	ends := func(tries, messages int) float64 {
		return 1 - math.Pow(1-math.Pow(q, float64(tries)), float64(messages))
	}
	for _, c := range []struct {
		retry, probes int // probes in a time-out: after 1 ms, 2 ms, ...
		timeout       uint8
		connections   int
		messages      int
	}{
		{0, 0, 7, 300, 1},
		{1, 0, 7, 300, 3},
		{3, 0, 7, 300, 24},
		{5, 0, 7, 300, 180},
		{7, 0, 7, 300, 1400},
		{0, 3, 10, 300, 24}, // 4.2 ms
		{1, 3, 10, 60, 1400},
		{0, 4, 11, 300, 66}, // 8.4 ms
	} {
		if n := c.connections * c.messages; race.Enabled && n > 20_000 || os.Getenv("GOUCX_TEST_LONG") == "" && n > 100_000 {
			continue
		}
		t.Run(fmt.Sprintf("retry_cnt %d, %d probes", c.retry, c.probes), func(t *testing.T) {
			failed := 0
			for seed := range uint64(c.connections) {
				if retried(t, seed, loss, c.messages, &rcSetup{
					mtu: verbs.MTU1024, timeout: c.timeout, retry: uint8(c.retry), rnrTimer: 1, access: allAccess,
					features: verbs.PeerProbe * uint32(min(c.probes, 1)),
				}) {
					failed++
				}
			}
			mean, sigma := binomial(c.connections, ends((c.retry+1)*(c.probes+1), c.messages))
			t.Logf("%d of %d connections ended, %.1f ± %.1f predicted", failed, c.connections, mean, sigma)
			require.InDelta(t, mean, failed, 4*sigma)
			for _, other := range []int{c.retry, c.retry + 2} { // tries of retry_cnt ± 1
				off, s := binomial(c.connections, ends(other*(c.probes+1), c.messages))
				require.Greater(t, math.Abs(off-mean), 4*(sigma+s), "no test of retry_cnt %d", c.retry)
			}
		})
	}
}

// binomial is the mean and the deviation of how many of n things with chance p
// happen.
func binomial(n int, p float64) (mean, sigma float64) {
	return float64(n) * p, math.Sqrt(float64(n) * p * (1 - p))
}

// retried sends messages one at a time, and reports whether the connection ended
// before the last was acknowledged.
func retried(t *testing.T, seed uint64, loss float64, messages int, s *rcSetup) bool {
	w, err := newSimWorld(seed, 2, Config{})
	require.NoError(t, err)
	link := sim.Link{Latency: 60 * time.Microsecond}
	w.net.SetDefault(link)
	from, to := newSimSide(t, w.devs[0], 8), newSimSide(t, w.devs[1], 8)
	require.NoError(t, connectRC(from.qp, to.qp, w.devs[0], w.devs[1], s))
	status := func() verbs.WCStatus {
		n, st := from.qp.PostSend([]verbs.SendWR{{
			Op: verbs.OpWrite, Flags: verbs.SendSignaled, NumSG: 1, SG: [4]verbs.SGE{from.piece(0, 8)}, Remote: to.mr.Addr(), RKey: to.mr.RKey(),
		}})
		require.Equal(t, []any{1, ucs.OK}, []any{n, st})
		var wcs [2]verbs.WC
		for {
			if n := from.cq.Poll(wcs[:]); n > 0 {
				require.Equal(t, 1, n)
				return wcs[0].Status
			}
			require.True(t, w.advance(), "nothing will ever happen")
		}
	}
	require.Equal(t, verbs.WCSuccess, status()) // the round trip is known
	link.Loss = loss
	w.net.SetDefault(link)
	for range messages {
		if st := status(); st != verbs.WCSuccess {
			require.Equal(t, verbs.WCRetryExcErr, st)
			return true
		}
	}
	return false
}
