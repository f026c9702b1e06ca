package wireup

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// clusterAddress is the address of process p on host h as a worker with self
// and shm has it.
func clusterAddress(t testing.TB, b []byte, h, p int) []byte {
	v := View{Host: testUUID('h', h), Process: testUUID('p', h<<16|p), Worker: testUUID('w', h<<16|p)}
	host, worker, name := v.Host, v.Worker, testUUID('n', h<<16|p)
	v.Entries = []Entry{
		{Transport: uct.TransportSelf, Device: 0, Addr: uct.Address{Iface: worker[:]}},
		{Transport: uct.TransportShm, Device: 1, Addr: uct.Address{Device: append(host[:], "network namespace, uid"...), Iface: append(name[:], worker[:]...)}},
	}
	b, err := v.Append(b)
	require.NoError(t, err)
	return b
}

func testUUID(kind byte, n int) (u uct.UUID) {
	u[0] = kind
	binary.LittleEndian.PutUint64(u[8:], uint64(n)*0x9E3779B97F4A7C15)
	return u
}

func heapAlloc() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A million distinct addresses, of 10,000 hosts with 100 processes each, cost
// at most 90 bytes each.
func TestGateMillionPeers(t *testing.T) {
	hosts, procs := 10_000, 100
	if testing.Short() {
		hosts = 1000
	}
	before := heapAlloc()
	var table Table
	var buf []byte
	var spent time.Duration
	for p := range procs {
		for h := range hosts {
			buf = clusterAddress(t, buf[:0], h, p)
			start := ucs.Now()
			_, err := table.Add(buf)
			spent += ucs.Now().Sub(start)
			require.NoError(t, err)
		}
	}
	after := heapAlloc()
	n := hosts * procs
	perPeer := float64(after-before) / float64(n)
	t.Logf("%d peers: %.1f bytes each, added in %v (%.0f ns each)", n, perPeer, spent, float64(spent.Nanoseconds())/float64(n))
	require.Equal(t, n, table.Len())
	assert.LessOrEqual(t, perPeer, 90.0)
	id, ok := table.Find(testUUID('w', 7<<16|9))
	require.True(t, ok)
	want, err := Parse(clusterAddress(t, nil, 7, 9))
	require.NoError(t, err)
	assert.Equal(t, want, table.View(id))
	runtime.KeepAlive(&table)
}
