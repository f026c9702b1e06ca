package cost

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
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
	like  wireup.View
	parts []part // of like.Entries
	host  int
	buf   []byte
}

// part says where in an iface part what stands that follows from the rest; -1:
// nowhere.
type part struct {
	worker, process, sum int
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
	c := &cluster{like: like, host: -1}
	for i := range like.Entries {
		e := &c.like.Entries[i]
		p := part{bytes.Index(e.Addr.Iface, like.Worker[:]), -1, -1}
		if from := p.worker + len(like.Worker); p.worker >= 0 {
			if at := bytes.Index(e.Addr.Iface[from:], like.Process[8:]); at >= 0 {
				p.process = from + at
			}
		}
		if e.Transport == uct.TransportRC || e.Transport == uct.TransportUD {
			p.sum = len(e.Addr.Iface) - 4
		}
		c.parts = append(c.parts, p)
	}
	return c
}

// address is that of the process of this number; valid until the next call.
func (c *cluster) address(t testing.TB, n int) ucp.Address {
	v := &c.like
	host := n / processesPerHost
	fill(v.Process[:], 'p', n)
	v.Worker = v.Process
	fill(v.Worker[:4], 'w', n)
	for i := range v.Entries {
		// What a host's workers have in common, and what tells them apart.
		a := &v.Entries[i].Addr
		if host != c.host {
			fill(a.Device, byte(i), host)
		}
		c.iface(a.Iface, i, n)
	}
	if host != c.host {
		fill(v.Host[:], 'h', host)
		c.host = host
	}
	b, err := v.Append(c.buf[:0])
	require.NoError(t, err)
	c.buf = b
	return b
}

// iface writes an iface part like the real one: with the worker, the process and
// the checksum where that has them.
func (c *cluster) iface(b []byte, i, n int) {
	fill(b, byte(i), n)
	p := c.parts[i]
	if p.worker >= 0 {
		copy(b[p.worker:], c.like.Worker[:])
	}
	if p.process >= 0 {
		copy(b[p.process:], c.like.Process[8:])
	}
	if p.sum >= 0 {
		binary.LittleEndian.PutUint32(b[p.sum:], crc32.Checksum(b[:p.sum], castagnoli))
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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

// TestGateUnusedEndpoint makes an endpoint to each of many workers, a hundred on
// each host, and uses none.
func TestGateUnusedEndpoint(t *testing.T) {
	if race.Enabled {
		t.Skip("sizes are not the product's under the race detector")
	}
	n := 300_000
	switch {
	case os.Getenv("GOUCX_TEST_LONG") != "":
		n = 1_000_000
	case testing.Short():
		n = 100_000
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
	t.Logf("making %d of them: %.2f s; a million in at most %v", n, took.Seconds(), millionLimit)
	assert.LessOrEqual(t, each, float64(endpointLimit))
	assert.Zero(t, u.files, "descriptors")
	require.NoError(t, w.Close()) // and keeps w alive until here
}
