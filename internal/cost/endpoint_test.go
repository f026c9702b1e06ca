package cost

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
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

const (
	processesPerHost = 100
	// netDevices is how many devices of a network transport stand in an address: those
	// of the program, of loopback, and of one interface, with two addresses each. A host
	// with more interfaces has more, at 10 bytes each.
	netDevices = 5
)

// newCluster takes the real address, without the devices that are too many.
func newCluster(t testing.TB, a ucp.Address) *cluster {
	like, err := wireup.Parse(a)
	require.NoError(t, err)
	seen := map[uct.TransportID]int{}
	like.Entries = slices.DeleteFunc(like.Entries, func(e wireup.Entry) bool {
		seen[e.Transport]++
		return seen[e.Transport] > netDevices
	})
	require.NotZero(t, seen[uct.TransportRC])
	require.NotZero(t, seen[uct.TransportUD])
	return &cluster{like: like}
}

// address is that of the process of this number; valid until the next call.
func (c *cluster) address(t testing.TB, n int) ucp.Address {
	v := c.like
	fill(v.Host[:], 'h', n/processesPerHost)
	fill(v.Process[:], 'p', n)
	v.Worker = v.Process
	fill(v.Worker[:4], 'w', n)
	v.Entries = slices.Clone(v.Entries)
	for i := range v.Entries {
		// What a host's workers have in common, and what tells them apart.
		a := &v.Entries[i].Addr
		a.Device = bytes.Clone(a.Device)
		fill(a.Device, byte(i), n/processesPerHost)
		a.Iface = c.iface(a.Iface, &v, i, n)
	}
	b, err := v.Append(c.buf[:0])
	require.NoError(t, err)
	c.buf = b
	return b
}

// iface is an iface part like a real one: with the worker, the process and the
// checksum where that has them.
func (c *cluster) iface(like []byte, v *wireup.View, kind, n int) []byte {
	b := make([]byte, len(like))
	fill(b, byte(kind), n)
	if at := bytes.Index(like, c.like.Worker[:]); at >= 0 {
		copy(b[at:], v.Worker[:])
		like = slices.Replace(bytes.Clone(like), at, at+len(v.Worker), make([]byte, len(v.Worker))...)
	}
	if at := bytes.Index(like, c.like.Process[8:]); at >= 0 {
		copy(b[at:], v.Process[8:])
	}
	if end := len(b) - 4; v.Entries[kind].Transport == uct.TransportRC || v.Entries[kind].Transport == uct.TransportUD {
		binary.LittleEndian.PutUint32(b[end:], crc32.Checksum(b[:end], crc32.MakeTable(crc32.Castagnoli)))
	}
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
	w := newWorker(t, openContext(t, "all"))
	c := newCluster(t, w.Address())
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
	t.Logf("endpoint not yet used: %.1f bytes each, at most %d (%d of them, address of %d bytes with %d interfaces)",
		each, endpointLimit, n, len(c.buf), len(c.like.Entries))
	t.Logf("making %d of them: %.2f s, at most %v", n, took.Seconds(), millionLimit)
	assert.LessOrEqual(t, each, float64(endpointLimit))
	assert.Zero(t, u.files, "descriptors")
	require.NoError(t, w.Close()) // and keeps w alive until here
}
