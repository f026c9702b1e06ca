package shm

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestMoreConnectionsThanAnInboxPage: all are heard without scans, asleep and
// awake, while others come and go.
func TestMoreConnectionsThanAnInboxPage(t *testing.T) {
	const n = slotsPerPage + 100
	before := countFDs(t)
	rnd := rand.New(rand.NewPCG(1, 1))
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	es, heard := make([]*ep, n), make([]uint64, n)
	rb.onAM = func(d uct.Desc, _ []byte) { heard[d.Header]++ }
	want := make([]uint64, n)
	send := func(i int) {
		if es[i] == nil {
			es[i] = connectTest(t, a, b)
		}
		require.Equal(t, ucs.OK, es[i].AMShort(1, uint64(i), nil))
		want[i]++
	}
	all := func() bool {
		for i := range want {
			if heard[i] != want[i] {
				return false
			}
		}
		return true
	}
	for i := range n {
		send(i)
	}
	until(t, all, a, b)
	require.Len(t, b.pages, 2)
	a.scanInterval, b.scanInterval = config.Forever, config.Forever
	for range 200 {
		switch i := rnd.IntN(n); rnd.IntN(4) {
		case 0:
			if es[i] != nil {
				es[i].Close()
				es[i] = nil
			}
		case 1:
			until(t, all, b)
			arm(t, b)
			send(i)
			require.True(t, readable(t, b, time.Minute), "connection %d", i)
		default:
			send(i)
		}
		a.Progress(64)
		b.Progress(64)
	}
	until(t, all, a, b)
	for _, e := range es {
		if e != nil {
			e.Close()
		}
	}
	until(t, func() bool { return a.Len() == 0 && b.Len() == 0 }, a, b)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.Equal(t, before, countFDs(t), "descriptors")
}

// openWith opens an iface with settings from an environment.
func openWith(t *testing.T, h uct.Handler, env ...string) *iface {
	s, err := loaded(env...)
	require.NoError(t, err)
	f, err := openIface(newTestDomain(t), uct.IfaceInfo{}, uct.IfaceConfig{Handler: h, Worker: uct.UUID{1}, Settings: s})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	return f.(*iface)
}

// TestRingsOfDifferentGeometry: each side sends as much as it promises, by the
// peer's connection where its rings are large enough for that.
func TestRingsOfDifferentGeometry(t *testing.T) {
	small := []string{"UCX_SHM_RING_CELLS=8", "UCX_SHM_RING_SIZE=4k"}
	large := []string{"UCX_SHM_RING_CELLS=4096", "UCX_SHM_RING_SIZE=2m"}
	for name, tc := range map[string]struct {
		a, b  []string
		reuse bool
	}{
		"small to large": {small, large, false},
		"large to small": {large, small, true},
	} {
		t.Run(name, func(t *testing.T) {
			var ra, rb recorder
			a, b := openWith(t, &ra, tc.a...), openWith(t, &rb, tc.b...)
			ab := connectTest(t, a, b)
			require.Equal(t, ucs.OK, ab.AMShort(1, 0, nil))
			until(t, func() bool { return rb.n == 1 }, a, b)
			ba := connectTest(t, b, a)
			require.Equal(t, tc.reuse, !ba.Has(conn.Initiated))
			for _, way := range []struct {
				e    *ep
				r    *recorder
				from *iface
			}{{ab, &rb, a}, {ba, &ra, b}} {
				longest := make([]byte, way.from.attr.AM.Short)
				require.Equal(t, ucs.TooLong, way.e.AMShort(1, 0, append(longest, 0)))
				for range 100 {
					n := way.r.n
					for range 1000 { // fill it whatever it holds
						if way.e.AMShort(1, 0, longest) != ucs.OK {
							break
						}
					}
					until(t, func() bool { return way.r.n > n }, a, b)
					require.Len(t, way.r.last, len(longest))
				}
			}
		})
	}
}

// TestSocketsInADirectory: peers with the same one reach each other, and nothing
// is left in it.
func TestSocketsInADirectory(t *testing.T) {
	dir := t.TempDir()
	env := "UCX_SHM_SOCKET_DIR=" + dir
	var ra, rb recorder
	a, b := openWith(t, &ra, env), openWith(t, &rb, env)
	e := connectTest(t, a, b)
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	until(t, func() bool { return rb.n == 1 }, a, b)
	other := openTest(t, new(recorder))
	_, err := other.NewEndpoint(addressOf(a))
	require.ErrorContains(t, err, "UCX_SHM_SOCKET_DIR")
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	require.NoError(t, a.d.Close())
	require.NoError(t, b.d.Close())
	names, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, names)
}
