package cost

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// Limits of an endpoint that is not used.
const (
	endpointLimit = 160 // bytes
	millionLimit  = 2 * time.Second
)

// cluster makes the addresses of workers like a real one on hosts of 100
// processes each.
type cluster struct {
	like wireup.View
	buf  []byte
}

const processesPerHost = 100

// address is that of the process of this number; valid until the next call.
func (c *cluster) address(t testing.TB, n int) ucp.Address {
	v := c.like
	fill(v.Host[:], 'h', n/processesPerHost)
	fill(v.Process[:], 'p', n)
	fill(v.Worker[:], 'w', n)
	for i := range v.Entries {
		// What a host's workers have in common, and what tells them apart.
		fill(v.Entries[i].Addr.Device, byte(i), n/processesPerHost)
		fill(v.Entries[i].Addr.Iface, byte(i), n)
	}
	b, err := v.Append(c.buf[:0])
	require.NoError(t, err)
	c.buf = b
	return b
}

// fill writes bytes that no other kind and number have, up to some collisions
// that do not matter here.
func fill(b []byte, kind byte, n int) {
	x := uint64(n)<<8 | uint64(kind)
	for len(b) > 0 {
		x = (x ^ x>>31) * 0x9E3779B97F4A7C15
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], x)
		b = b[copy(b, word[:]):]
	}
}

// TestGateUnusedEndpoint makes an endpoint to each of a million workers of
// 10,000 hosts and uses none.
func TestGateUnusedEndpoint(t *testing.T) {
	if raceEnabled {
		t.Skip("sizes are not the product's under the race detector")
	}
	n := 1_000_000
	if testing.Short() {
		n /= 10
	}
	w := newWorker(t, openContext(t))
	like, err := wireup.Parse(w.Address())
	require.NoError(t, err)
	c := cluster{like: like}
	c.address(t, 0)

	before := usage(t)
	var took time.Duration
	for i := range n {
		a := c.address(t, i)
		start := ucs.Now()
		_, err := w.NewEndpoint(a, ucp.EndpointConfig{})
		took += ucs.Now().Sub(start)
		if err != nil {
			require.NoError(t, err)
		}
	}
	u := usage(t).minus(before)
	each := float64(u.heap+u.mapped) / float64(n)
	t.Logf("endpoint not yet used: %.1f bytes each, at most %d (%d of them, address of %d bytes)", each, endpointLimit, n, len(w.Address()))
	t.Logf("making %d of them: %.2f s, at most %v", n, took.Seconds(), millionLimit)
	assert.LessOrEqual(t, each, float64(endpointLimit))
	assert.Zero(t, u.files, "descriptors")
	require.NoError(t, w.Close()) // and keeps w alive until here
}
