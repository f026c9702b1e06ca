package perf

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucs"
)

// carries reports whether a transport over verbs carries the operation, of eight
// bytes.
func carries(transport string, op Op, l Layout) bool {
	switch {
	case op == OpAM:
		return true
	case transport == "ud" || op == OpSwap:
		return false
	case op == OpGet:
		return l != Short
	default:
		return true
	}
}

// uctOverVerbs calls f with each test of UCT in each layout over each transport
// over verbs, within this program and over UDP.
func uctOverVerbs(t *testing.T, f func(t *testing.T, p Params, op Op)) {
	for _, row := range Tests() {
		if row.API != UCT || row.Later {
			continue
		}
		for _, transport := range []string{"rc", "ud"} {
			for _, device := range []string{"inproc:1", "lo"} {
				for _, l := range []Layout{Short, Bcopy, Zcopy} {
					p := Defaults()
					p.Test, p.Transport, p.Device, p.Layout = row.Name, transport, device, l
					p.Iterations, p.Warmup = 200, 10
					t.Run(row.Name+"/"+transport+"/"+device+"/"+string(l), func(t *testing.T) { f(t, p, row.Op) })
				}
			}
		}
	}
}

// Each test of UCT runs over rc and ud, or is refused by name before it does.
func TestUCTOverVerbs(t *testing.T) {
	uctOverVerbs(t, func(t *testing.T, p Params, op Op) {
		r, err := Run(Config{Providers: transports.All()}, rte.Loop{}, p)
		if carries(p.Transport, op, p.Layout) {
			require.NoError(t, err)
			assert.Equal(t, p.Iterations, r.Last.Iterations)
			return
		}
		require.ErrorIs(t, err, ucs.ErrUnsupported)
		assert.ErrorContains(t, err, "set up "+p.Test+": "+p.Transport+"/")
		assert.ErrorContains(t, err, "does not support "+p.Test)
	})
}

// No loop allocates per message.
func TestGateUCTOverVerbsAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	uctOverVerbs(t, func(t *testing.T, p Params, op Op) {
		if p.Device == "inproc:1" && carries(p.Transport, op, p.Layout) {
			k, st := alone(t, p)
			allocatesNothing(t, k, st)
		}
	})
}

// What an interface does not take is told with its bound.
func TestUCTOverVerbsRefusesSizes(t *testing.T) {
	for _, c := range []struct {
		test, transport string
		layout          Layout
		size            int64
		want            string
	}{
		{"am_lat", "rc", Short, 100, "message size (100) is larger than max supported (56) by rc/lo:1 with data layout short"},
		{"put_lat", "rc", Short, 65, "message size (65) is larger than max supported (64) by rc/lo:1"},
		{"am_bw", "ud", Bcopy, 5000, "message size (5000) is larger than max supported (4072) by ud/lo:1 with data layout bcopy"},
		{"fadd", "rc", Short, 4, "rc/lo:1 does not support fadd of 4 bytes"},
		{"get", "rc", Short, 8, "rc/lo:1 does not support get with data layout short, but with bcopy and zcopy"},
		{"put_lat", "ud", Bcopy, 8, "ud/lo:1 does not support put_lat with data layout bcopy, nor with another"},
	} {
		p := Defaults()
		p.Test, p.Transport, p.Device, p.Layout, p.Sizes = c.test, c.transport, "lo:1", c.layout, []int64{c.size}
		_, err := Run(Config{Providers: transports.All()}, rte.Loop{}, p)
		assert.ErrorContains(t, err, c.want)
	}
}
