//go:build linux

package test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
)

// mostOnWire is how many times the packets of a clean path a bad one may cost.
const mostOnWire = 2

// TestWirePackets counts the packets that puts, gets and tag messages of two processes
// cost per megabyte, both ways together. On a path that loses one packet in a hundred,
// or has up to eight others pass one in fifty, rc sends less than twice those of a
// clean path. ud, to compare with, belongs to the long form.
func TestWirePackets(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	n := newNetwork(t, 2)
	volume, transports := 8<<20, []string{"rc"}
	if long() {
		volume, transports = 64<<20, []string{"rc", "ud"}
	}
	for _, tls := range transports {
		for _, tc := range []struct {
			test string
			size int
		}{{"ucp_put_bw", 8 << 10}, {"ucp_put_bw", 1 << 20}, {"ucp_get", 8 << 10}, {"ucp_get", 1 << 20}, {"tag_bw", 8 << 10}, {"tag_bw", 1 << 20}} {
			t.Run(fmt.Sprintf("%s/%s of %d", tls, tc.test, tc.size), func(t *testing.T) {
				n.t = t
				var perMB [3]float64
				for i, h := range []harm{{}, {drop: 0.01}, {reorder: 0.02}} {
					perMB[i] = wirePackets(t, n, h, tls, tc.test, tc.size, volume/tc.size)
				}
				clean, lossy, late := perMB[0], perMB[1], perMB[2]
				t.Logf("packets per megabyte: %.0f clean, %.0f with loss (%.2f), %.0f with reordering (%.2f)", clean, lossy, lossy/clean, late, late/clean)
				assert.Less(t, lossy, mostOnWire*clean, "packets with loss")
				assert.Less(t, late, mostOnWire*clean, "packets with reordering")
			})
		}
	}
}

// wirePackets runs ucx_perftest between two hosts and returns the packets per megabyte.
func wirePackets(t *testing.T, n *network, h harm, tls, test string, size, count int) (perMB float64) {
	t.Run(fmt.Sprintf("loss %v, reordering %v", h.drop, h.reorder), func(t *testing.T) {
		n.t = t
		f := newForwarder(t, n, h, 1)
		tool := built(t, "ucx_perftest")
		var sides [2]*suitetest.Command
		for i, args := range []string{"", fmt.Sprintf("10.9.0.1 -q -f -t %s -s %d -n %d -w 1", test, size, count)} {
			env := append(os.Environ(), "UCX_TLS=self,"+tls, fmt.Sprintf("UCX_SOFT_ADDR=10.9.1.%d", i+1))
			n.on(i, func() { sides[i] = runIn(t, env, tool, strings.Fields(args)...) })
			if i == 0 {
				sides[i].Says("Waiting for connection")
			}
		}
		for i := 1; i >= 0; i-- {
			require.Zero(t, sides[i].End(patience), "%s", &sides[i].Err)
		}
		packets, dropped, reordered := 0, 0, 0
		for _, w := range f.ways { // of which one may have a few acknowledgements only
			w.mu.Lock()
			packets, dropped, reordered = packets+w.packets, dropped+w.dropped, reordered+w.reordered
			w.mu.Unlock()
		}
		require.Equal(t, h.drop > 0, dropped > 0)
		require.Equal(t, h.reorder > 0, reordered > 0)
		perMB = float64(packets) / (float64(size*(count+1)) / (1 << 20))
	})
	return perMB
}
