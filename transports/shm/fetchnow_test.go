package shm

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// TestFetchNow: the owner copies no piece of it, also if the peer copied pieces of an earlier message in its entry.
func TestFetchNow(t *testing.T) {
	x := newFetcher(t)
	n := 4 * pieceSize
	src, dst := text(n), make([]byte, n)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	require.Equal(t, ucs.OK, x.fetch(1, n, dst), "the entry is the active one now")
	require.Equal(t, ucs.Busy, x.ab.Withdraw(id(1)))
	require.Equal(t, ucs.OK, x.ab.Expose(id(1)+1<<32, src, nil))
	clear(dst)
	require.Equal(t, ucs.OK, x.b.FetchNow(x.ba.Source, id(1)+1<<32, uint64(n), dst))
	require.True(t, bytes.Equal(src, dst))
	require.Zero(t, x.a.help())
	require.Equal(t, ucs.Busy, x.ab.Withdraw(id(1)+1<<32))
	long := make([]byte, (maxRun+1)*pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(2), long, nil))
	require.Equal(t, ucs.Unsupported, x.b.FetchNow(x.ba.Source, id(2), uint64(len(long)), long))

	require.Equal(t, ucs.OK, x.ab.Expose(id(3), src, nil))
	x.ab.copies.own.at(x.ab.copies.own.find(id(3))).addr = 16
	require.Equal(t, ucs.RemoteAccess, x.b.FetchNow(x.ba.Source, id(3), uint64(n), dst))
	require.Equal(t, ucs.OK, x.ab.Withdraw(id(3)), "it was not fetched")
	require.Empty(t, x.b.fetching)
}

// TestFetchesNow: only a peer that has read memory of this process is known to be able to.
func TestFetchesNow(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(x *fetcher)
		want  bool
	}{
		"reads":           {func(*fetcher) {}, true},
		"mapped only":     {func(x *fetcher) { x.ba.copies.state = copiesMapped }, false},
		"no pid":          {func(x *fetcher) { x.ba.pid = 0 }, false},
		"another process": {func(x *fetcher) { x.ba.pid = 1 << 22 }, false},
		"garbage":         {func(x *fetcher) { x.ab.copies.own.probe().Store(addressOfBytes(make([]byte, 8))) }, false},
		"no memory":       {func(x *fetcher) { x.ab.copies.own.probe().Store(16) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFetcher(t)
			require.Equal(t, ucs.OK, x.ab.makeCopyTable())
			c.spoil(x)
			until(t, func() bool { return x.ba.copies.peer.seg != nil }, x.b)
			require.Equal(t, c.want, x.ab.FetchesNow())
		})
	}
	x := newFetcher(t)
	x.ab.copies.state = copiesRefused
	require.False(t, x.ab.FetchesNow())
	require.Nil(t, x.ab.copies.own.seg)
}
