package shm

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestCopyWays: what the settings and the system permit, and what is said about it.
func TestCopyWays(t *testing.T) {
	old, oldCost := tryCopy, copyCost
	t.Cleanup(func() { tryCopy, copyCost = old, oldCost })
	copyCost = func() time.Duration { return 650 * time.Nanosecond }
	forbidden := errors.New("the system forbids it")
	const (
		ring = "through the ring, copied by the sender and by the receiver"
		call = "copied by the receiver with process_vm_readv"
		maps = "copied by the receiver from its mapping of the memory"
		both = ", and by the sender too while it polls"
		all  = copiesByMapping | copiesByRead | copiesByWrite | copiesByBoth
	)
	for _, c := range []struct {
		env             []string
		read, write     error
		want            copyWays
		heap, allocated int
		heapWay, allWay string
		heapReason      string
	}{
		{nil, nil, nil, all, 6145, 2049, call + both, maps + both, "the system permits it, and UCX_SHM_SINGLE_COPY=auto (default)"},
		{nil, forbidden, nil, copiesByMapping | copiesByBoth, 0, 2049, ring, maps + both, "the system forbids it"},
		{nil, nil, forbidden, all &^ copiesByWrite, 6145, 2049, call, maps + both, "its sender can copy nothing: the system forbids it"},
		{[]string{"UCX_SHM_SINGLE_COPY=none"}, nil, nil, 0, 0, 0, ring, ring, "UCX_SHM_SINGLE_COPY=none (environment UCX_SHM_SINGLE_COPY)"},
		{[]string{"UCX_SHM_SINGLE_COPY=mapped"}, nil, nil, copiesByMapping | copiesByBoth, 0, 2049, ring, maps + both, "UCX_SHM_SINGLE_COPY=mapped (environment UCX_SHM_SINGLE_COPY)"},
		{[]string{"UCX_SHM_SINGLE_COPY=cma"}, nil, nil, all &^ copiesByMapping, 6145, 6145, call + both, call + both, "the system permits it, and UCX_SHM_SINGLE_COPY=cma (environment UCX_SHM_SINGLE_COPY)"},
		{[]string{"UCX_SHM_SINGLE_COPY=cma"}, forbidden, forbidden, 0, 0, 0, ring, ring, "the system forbids it"},
		{[]string{"UCX_SHM_COOPERATIVE_COPY=n"}, nil, nil, all &^ copiesByBoth, 6145, 2049, call, maps, "the system permits it, and UCX_SHM_SINGLE_COPY=auto (default)"},
		{[]string{"UCX_SHM_FETCH_THRESH=inf", "UCX_SHM_FETCH_MAPPED_THRESH=1k"}, nil, nil, all, 0, 1025, call + both, maps + both, "the system permits it, and UCX_SHM_SINGLE_COPY=auto (default)"},
	} {
		set, err := loaded(c.env...)
		require.NoError(t, err)
		tryCopy = func() (read, write error) { return c.read, c.write }
		got, a := copiesOf(set)
		assert.Equal(t, c.want, got, "%v", c.env)
		assert.Equal(t, c.heap, a.Heap.From, "%v", c.env)
		assert.Equal(t, c.allocated, a.Allocated.From, "%v", c.env)
		assert.Equal(t, c.heapWay, a.Heap.Way, "%v", c.env)
		assert.Equal(t, c.allWay, a.Allocated.Way, "%v", c.env)
		assert.Contains(t, a.Heap.Reason, c.heapReason, "%v", c.env)
	}
	for _, bad := range []string{"UCX_SHM_SINGLE_COPY=maped", "UCX_SHM_FETCH_THRESH=1023", "UCX_SHM_FETCH_MAPPED_THRESH=-1", "UCX_SHM_COOPERATIVE_COPY=2"} {
		name, _, _ := strings.Cut(bad, "=")
		_, err := loaded(bad)
		require.ErrorContains(t, err, name)
	}
}

// TestFetchThresh: auto follows the time of a copy by system call.
func TestFetchThresh(t *testing.T) {
	old := copyCost
	t.Cleanup(func() { copyCost = old })
	for cost, want := range map[time.Duration]config.Bytes{0: 4 << 10, 650: 6 << 10, 1400: 28 << 10, 1e6: 32 << 10} {
		copyCost = func() time.Duration { return cost }
		set, err := loaded()
		require.NoError(t, err)
		n, why := FetchThresh(set)
		assert.Equal(t, want, n, "%v", cost)
		assert.Contains(t, why, "UCX_SHM_FETCH_THRESH=auto (default): "+want.String()+", since a copy by system call takes")
		set, err = loaded("UCX_SHM_FETCH_THRESH=5000")
		require.NoError(t, err)
		n, _ = FetchThresh(set)
		assert.Equal(t, config.Bytes(5000), n)
	}
}

// TestCopyWaysOfTwo: each side copies only as it may.
func TestCopyWaysOfTwo(t *testing.T) {
	const all = copiesByMapping | copiesByRead | copiesByWrite | copiesByBoth
	n := 40*pieceSize + 5
	for name, c := range map[string]struct {
		owner, receiver      copyWays
		heap                 ucs.Status
		heapHelp, mappedHelp bool // the owner copies pieces
		regions              int  // of the owner that the receiver maps
	}{
		"all":                    {all, all, ucs.OK, true, true, 1},
		"receiver maps only":     {all, all &^ (copiesByRead | copiesByWrite), ucs.Unsupported, false, true, 1},
		"owner maps nothing":     {all &^ copiesByMapping, all, ucs.OK, true, true, 0},
		"receiver maps nothing":  {all, all &^ copiesByMapping, ucs.OK, true, true, 0},
		"owner does not write":   {all &^ copiesByWrite, all, ucs.OK, false, true, 1},
		"owner copies nothing":   {all &^ copiesByBoth, all, ucs.OK, false, false, 1},
		"receiver wants no help": {all, all &^ copiesByBoth, ucs.OK, false, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFetcher(t)
			x.a.copies, x.b.copies = c.owner, c.receiver
			if c.receiver&copiesByRead == 0 {
				x.ba.copies.state = copiesMapped
			}
			src, dst := allocated(t, x.a, n, uct.MemRemote), allocated(t, x.b, n, uct.MemRemote)
			copy(src.Bytes(), text(n))
			helped := func(k int) bool {
				e := x.ab.copies.own.at(index(id(k), 0))
				defer e.done.Store(0)
				return e.done.Load() > 0
			}
			heap := make([]byte, n)
			require.Equal(t, c.heap, x.mappedOnly(1, text(n), nil, heap, nil))
			require.Equal(t, c.heapHelp, helped(1), "heap")
			require.Equal(t, c.heap == ucs.OK, bytes.Equal(heap, text(n)))
			require.Equal(t, ucs.OK, x.mappedOnly(2, src.Bytes(), src, dst.Bytes(), dst))
			require.Equal(t, c.mappedHelp, helped(2), "mapped")
			require.True(t, bytes.Equal(dst.Bytes(), text(n)))
			require.Len(t, x.ba.copies.mapped.list, c.regions)
		})
	}
}
