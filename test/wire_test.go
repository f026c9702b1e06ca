//go:build linux

package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// seedEnv sets what a forwarder does to packets, to repeat a run.
const seedEnv = "GOUCX_TEST_SEED"

// TestWire: two processes on two hosts exchange every operation over a path that
// drops, corrupts, replays and reorders packets. All that they receive and read is
// whole, in order and complete, and no connection fails. In the long form each harm has
// runs of its own, and one has much of all.
func TestWire(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	t.Setenv(wideEnv, "1")
	n := newNetwork(t, 2)
	during := time.Second
	harms := map[string]harm{
		"loss":    {drop: 0.01},
		"reorder": {reorder: 0.02},
		"all":     {drop: 0.01, corrupt: 0.01, replay: 0.01, reorder: 0.02},
	}
	if long() {
		during = time.Minute
		harms["corrupt"], harms["replay"] = harm{corrupt: 0.02}, harm{replay: 0.05}
		harms["much"] = harm{drop: 0.05, corrupt: 0.02, replay: 0.02, reorder: 0.1}
	}
	for name, h := range harms {
		for _, tls := range []string{"self,rc", "self,ud"} {
			t.Run(name+"/"+tls, func(t *testing.T) {
				t.Setenv(tlsEnv, tls)
				n.t = t
				seed := rand.Uint64()
				if s, err := strconv.ParseUint(os.Getenv(seedEnv), 10, 64); err == nil {
					seed = s
				}
				t.Logf("%s=%d", seedEnv, seed)
				wire(t, n, newForwarder(t, n, h, seed), during)
			})
		}
	}
}

func wire(t *testing.T, n *network, f *forwarder, during time.Duration) {
	c := newCrowd(t)
	for i := range 2 {
		n.on(i, func() {
			c.join(func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, fmt.Sprintf("UCX_SOFT_ADDR=10.9.1.%d", i+1)) })
		})
	}
	for began := time.Now(); time.Since(began) < during || !f.harmed() && time.Since(began) < patience; {
		c.advance(1)
	}
	c.settle()
	c.use(func(_, _ uint32) string { return `(rc|ud)/wire\S*` })
	c.end()
	for i, w := range f.ways {
		w.mu.Lock()
		t.Logf("from host %d: %d packets, %.1f MB; %d dropped, %d corrupted, %d replayed, %d reordered",
			i+1, w.packets, float64(w.bytes)/1e6, w.dropped, w.corrupted, w.replayed, w.reordered)
		w.mu.Unlock()
	}
	require.True(t, f.harmed())
}

// harmed reports whether each harm, and no other, has happened in both directions.
func (f *forwarder) harmed() bool {
	for _, w := range f.ways {
		w.mu.Lock()
		same := f.harm.drop > 0 == (w.dropped > 0) && f.harm.corrupt > 0 == (w.corrupted > 0) &&
			f.harm.replay > 0 == (w.replayed > 0) && f.harm.reorder > 0 == (w.reordered > 0)
		w.mu.Unlock()
		if !same {
			return false
		}
	}
	return true
}
