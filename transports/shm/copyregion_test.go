package shm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// allocated returns n bytes that the domain of f has allocated.
func allocated(t *testing.T, f *iface, n int, flags uct.MemFlags) uct.Mem {
	m, err := f.d.Allocate(n, flags)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// noSystemCalls has both sides of x copy through mappings only.
func (x *fetcher) noSystemCalls() {
	x.ab.pid, x.ba.pid = 0, 0
	x.ba.copies.guard = nil
}

// mappedOnly exposes src as k and fetches it into dst, while both sides copy.
func (x *fetcher) mappedOnly(k int, src []byte, sm uct.Mem, dst []byte, dm uct.Mem) uct.Status {
	require.Equal(x.t, ucs.OK, x.ab.Expose(id(k), src, sm))
	defer x.ab.Withdraw(id(k))
	st := x.b.Fetch(x.ba.Source, id(k), uint64(len(src)), dst, dm, uct.Token(k))
	if st == ucs.InProgress {
		x.ended = x.ended[:0]
		until(x.t, func() bool { return len(x.ended) > 0 }, x.a, x.b)
		st = x.ended[0].Status
	}
	return st
}

// TestFetchMapped: both sides copy between allocated memory without a system call.
func TestFetchMapped(t *testing.T) {
	x := newFetcher(t)
	x.noSystemCalls()
	n := 40*pieceSize + 5
	src, dst := allocated(t, x.a, n+99, uct.MemRemote), allocated(t, x.b, n+77, uct.MemRemote)
	copy(src.Bytes()[99:], text(n))
	for k := range 3 {
		clear(dst.Bytes())
		require.Equal(t, ucs.OK, x.mappedOnly(k, src.Bytes()[99:], src, dst.Bytes()[7:][:n], dst))
		require.True(t, bytes.Equal(src.Bytes()[99:], dst.Bytes()[7:][:n]))
		require.Equal(t, make([]byte, 7), dst.Bytes()[:7])
		require.Equal(t, make([]byte, 70), dst.Bytes()[7+n:])
	}
	require.NotZero(t, x.ab.copies.own.at(index(id(0), 0)).done.Load(), "the owner has copied none")

	// Of other memory the owner copies none, and what is not mapped is not fetched.
	heap := make([]byte, n)
	require.Equal(t, ucs.OK, x.mappedOnly(10, src.Bytes()[99:], src, heap, nil))
	require.True(t, bytes.Equal(src.Bytes()[99:], heap))
	require.Zero(t, x.ab.copies.own.at(index(id(10), 0)).done.Load())
	require.Equal(t, ucs.Unsupported, x.mappedOnly(11, heap, nil, dst.Bytes()[:n], dst))
	private := allocated(t, x.a, n, 0)
	require.Equal(t, ucs.Unsupported, x.mappedOnly(12, private.Bytes(), private, dst.Bytes()[:n], dst), "no peer may reach it")
}

// TestRegionsComeAndGo: a region that its owner has closed is unmapped, and many can be used in turn.
func TestRegionsComeAndGo(t *testing.T) {
	x := newFetcher(t)
	x.noSystemCalls()
	dst := make([]byte, 4096)
	keep := allocated(t, x.a, 4096, uct.MemRemote)
	for k := range 3 * maxRegions {
		m, err := x.a.d.Allocate(4096, uct.MemRemote)
		require.NoError(t, err)
		m.Bytes()[0] = byte(k)
		require.Equal(t, ucs.OK, x.mappedOnly(2*k, m.Bytes(), m, dst, nil))
		require.Equal(t, byte(k), dst[0])
		require.NoError(t, m.Close())
		require.Equal(t, ucs.OK, x.mappedOnly(2*k+1, keep.Bytes(), keep, dst, nil))
	}
	list := func() []copyRegion { return x.ba.copies.mapped.list }
	require.Len(t, list(), maxRegions)
	until(t, func() bool {
		open := 0
		for i := range list() {
			if list()[i].seg != nil {
				open++
			}
		}
		return open <= 1
	}, x.b)
}

// TestRegionClosedMeanwhile: an owner that closes memory that it exposes.
func TestRegionClosedMeanwhile(t *testing.T) {
	x := newFetcher(t)
	x.noSystemCalls()
	n := 8 * pieceSize
	m, err := x.a.d.Allocate(n, uct.MemRemote)
	require.NoError(t, err)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), m.Bytes(), m))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(n), make([]byte, n), nil, 1))
	x.b.continueFetches()
	require.NoError(t, m.Close())
	until(t, func() bool { return len(x.ended) > 0 }, x.b)
	require.Equal(t, []uct.Event{{Token: 1, Status: ucs.RemoteAccess}}, x.ended)
}

// TestRegionGarbage: names of regions that a peer makes up.
func TestRegionGarbage(t *testing.T) {
	x := newFetcher(t)
	m := allocated(t, x.a, 2*pieceSize, uct.MemRemote)
	dst := make([]byte, 2*pieceSize)
	require.Equal(t, ucs.OK, x.mappedOnly(1, m.Bytes(), m, dst, nil))
	for name, spoil := range map[string]func(*copyEntry){
		"below":   func(c *copyEntry) { c.addr-- },
		"beyond":  func(c *copyEntry) { c.addr++ },
		"nowhere": func(c *copyEntry) { c.addr = 1 << 63 },
	} {
		require.Equal(t, ucs.OK, x.ab.Expose(id(2), m.Bytes(), m))
		spoil(x.ab.copies.own.at(index(id(2), 0)))
		require.Equal(t, ucs.RemoteAccess, x.fetch(2, len(dst), dst), name)
		x.ab.Withdraw(id(2))
	}
	require.ErrorIs(t, x.ba.handleCopyRegion(copyRegion{regionRef: regionRef{slot: 9, gen: 9}, length: 1}, nil), ucs.ErrInvalid, "no descriptors")
	require.ErrorIs(t, x.ba.handleCopyRegion(copyRegion{regionRef: regionRef{slot: 9}, length: 1}, nil), ucs.ErrInvalid, "no generation")
}
