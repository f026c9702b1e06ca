//go:build linux

package test

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// TestWire: two processes on two hosts exchange every operation over a path that
// drops, corrupts, replays and reorders packets. All that they receive and read is
// whole, in order and complete, and no connection fails.
func TestWire(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	t.Setenv(wideEnv, "1")
	n := newNetwork(t, 2)
	during := 2 * time.Second
	if long() {
		during = time.Minute
	}
	for name, h := range map[string]harm{
		"loss":    {drop: 0.01},
		"reorder": {reorder: 0.02},
		"all":     {drop: 0.01, corrupt: 0.01, replay: 0.01, reorder: 0.02},
	} {
		for _, tls := range []string{"self,rc", "self,ud"} {
			t.Run(name+"/"+tls, func(t *testing.T) {
				t.Setenv(tlsEnv, tls)
				n.t = t
				seed := rand.Uint64()
				t.Logf("seed %d", seed)
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
	for began := time.Now(); time.Since(began) < during; {
		c.advance(1)
	}
	c.settle()
	c.use(func(_, _ uint32) string { return `(rc|ud)/wire\S*` })
	c.end()
	for i, w := range f.ways {
		w.mu.Lock()
		t.Logf("from host %d: %d packets, %.1f MB; %d dropped, %d corrupted, %d replayed, %d reordered",
			i+1, w.packets, float64(w.bytes)/1e6, w.dropped, w.corrupted, w.replayed, w.reordered)
		for _, x := range []struct {
			chance float64
			did    int
		}{{f.harm.drop, w.dropped}, {f.harm.corrupt, w.corrupted}, {f.harm.replay, w.replayed}, {f.harm.reorder, w.reordered}} {
			require.Equal(t, x.chance > 0, x.did > 0)
		}
		w.mu.Unlock()
	}
}
