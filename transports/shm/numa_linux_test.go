package shm

import (
	"os"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

// TestRingsAreOnTheirReadersNode, on a made-up machine with two nodes: each side places the pages of the ring that it reads.
func TestRingsAreOnTheirReadersNode(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	topo, err := cpu.ReadTopology(fstest.MapFS{
		"sys/devices/system/cpu/online":         file("0-3"),
		"sys/devices/system/node/online":        file("0-1"),
		"sys/devices/system/node/node0/cpulist": file("0,2"),
		"sys/devices/system/node/node1/cpulist": file("1,3"),
	})
	require.NoError(t, err)
	type placed struct {
		bytes int
		node  uint
	}
	var got []placed
	on := 0
	n := newNodes(topo)
	n.current = func() int { return on }
	n.prefer = func(mem []byte, node uint) error {
		got = append(got, placed{len(mem), node})
		return preferNode(mem, 0) // this machine need not have another one
	}
	old := machineNodes
	machineNodes = func() *nodes { return n }
	t.Cleanup(func() { machineNodes = old })

	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	e := connectTest(t, a, b)
	page, stride := os.Getpagesize(), ringStride(a.layout)
	whole := (2*stride - (stride+page-1)/page*page)
	require.Equal(t, []placed{{whole, 0}}, got, "the maker on processor 0 reads the second ring")
	on = 3
	require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
	until(t, func() bool { return rb.n == 1 }, b)
	require.Equal(t, placed{stride / page * page, 1}, got[1], "the acceptor on processor 3 reads the first ring")
	require.Len(t, got, 2)
	for range 1000 {
		require.Equal(t, ucs.OK, e.AMShort(1, 0, make([]byte, 1000)))
		want := rb.n + 1
		until(t, func() bool { return rb.n == want }, a, b)
	}
	require.False(t, newNodes(&cpu.Topology{CPUs: topo.CPUs[:1]}).place(make([]byte, 4*page), 0, 4*page), "one node")
	require.NoError(t, preferNode(e.pairs[0].seg.Bytes(), 0), "the call itself")
	require.GreaterOrEqual(t, currentCPU(), 0)
}
