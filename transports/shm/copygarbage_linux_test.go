package shm

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// hostileFile returns a file in memory of n bytes, with the given seals.
func hostileFile(t *testing.T, n int64, flags, seals int) int {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	require.NoError(t, unix.Ftruncate(fd, n))
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return fd
}

// TestCopyMessagesRefused: a peer whose copy table or region is not what it must be fails, and no other one.
func TestCopyMessagesRefused(t *testing.T) {
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	null, err := os.Open(os.DevNull)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, null.Close()) })
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	require.NoError(t, file.Truncate(copyTableSize))
	t.Cleanup(func() { require.NoError(t, file.Close()) })
	table := func() int { return hostileFile(t, copyTableSize, 0, sealed) }
	keys := func() int { return hostileFile(t, tableBytes, 0, sealed) }
	region := func(n int64) int { return hostileFile(t, n, 0, sealed) }
	message := func(k msgKind, change func(*copyRegion)) *connMsg {
		h := &connMsg{kind: k, region: copyRegion{regionRef: regionRef{slot: 3, gen: 4}, base: 4096, length: 4096}}
		if change != nil {
			change(&h.region)
		}
		return h
	}
	none := func(*copyRegion) {}
	for name, c := range map[string]struct {
		h   *connMsg
		fds []int
	}{
		"table without a descriptor":  {message(kindCopyTable, nil), nil},
		"table with two":              {message(kindCopyTable, nil), []int{table(), table()}},
		"table of another size":       {message(kindCopyTable, nil), []int{hostileFile(t, copyTableSize/2, 0, sealed)}},
		"table that can shrink":       {message(kindCopyTable, nil), []int{hostileFile(t, copyTableSize, 0, unix.F_SEAL_GROW|unix.F_SEAL_SEAL)}},
		"table with seals to come":    {message(kindCopyTable, nil), []int{hostileFile(t, copyTableSize, 0, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)}},
		"table that is a device":      {message(kindCopyTable, nil), []int{int(null.Fd())}},
		"table that is a file":        {message(kindCopyTable, nil), []int{int(file.Fd())}},
		"table in huge pages":         {message(kindCopyTable, nil), []int{hostileFile(t, 2<<20, unix.MFD_HUGETLB, sealed)}},
		"region without descriptors":  {message(kindCopyRegion, none), nil},
		"region without a key table":  {message(kindCopyRegion, none), []int{region(4096)}},
		"region with three":           {message(kindCopyRegion, none), []int{region(4096), keys(), keys()}},
		"region of another size":      {message(kindCopyRegion, none), []int{region(8192), keys()}},
		"region of no bytes":          {message(kindCopyRegion, func(r *copyRegion) { r.length = 0 }), []int{region(4096), keys()}},
		"region that is too long":     {message(kindCopyRegion, func(r *copyRegion) { r.length = maxRegion + 1 }), []int{region(maxRegion + 1), keys()}},
		"region of endless length":    {message(kindCopyRegion, func(r *copyRegion) { r.length = 1<<64 - 1 }), []int{region(4096), keys()}},
		"region of no generation":     {message(kindCopyRegion, func(r *copyRegion) { r.gen = 0 }), []int{region(4096), keys()}},
		"region that can shrink":      {message(kindCopyRegion, none), []int{hostileFile(t, 4096, 0, unix.F_SEAL_GROW|unix.F_SEAL_SEAL), keys()}},
		"region that is a device":     {message(kindCopyRegion, none), []int{int(null.Fd()), keys()}},
		"key table of another size":   {message(kindCopyRegion, none), []int{region(4096), region(4096)}},
		"key table that is a device":  {message(kindCopyRegion, none), []int{region(4096), int(null.Fd())}},
		"key table before the region": {message(kindCopyRegion, none), []int{keys(), region(4096)}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFetcher(t)
			other := openTest(t, new(recorder))
			good := connectTest(t, other, x.b)
			h := x.a.newConnMsg(c.h.kind, x.ab.Slot())
			h.region = c.h.region
			require.NoError(t, x.ab.sock.Send(h.append(nil), c.fds...))
			until(t, func() bool { return len(x.rb.failures) > 0 }, x.b)
			require.Len(t, x.rb.failures, 1)
			require.ErrorIs(t, x.rb.failures[0].Err, ucs.ErrPeerFailed)
			t.Log(x.rb.failures[0].Err)
			n := x.rb.n
			require.Equal(t, ucs.OK, good.AMShort(1, 0, nil))
			until(t, func() bool { return x.rb.n == n+1 }, x.b, other)
		})
	}
}

// TestManyRegions: of hundreds of regions few are mapped.
func TestManyRegions(t *testing.T) {
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	x := newFetcher(t)
	keys := hostileFile(t, tableBytes, 0, sealed)
	for k := range 500 {
		h := x.a.newConnMsg(kindCopyRegion, x.ab.Slot())
		h.region = copyRegion{regionRef: regionRef{slot: uint32(k) << 20, gen: uint64(k + 1)}, base: ^uint64(0), length: maxRegion}
		fd := hostileFile(t, maxRegion, 0, sealed)
		for x.ab.sock.Send(h.append(nil), fd, keys) != nil {
			x.b.service() // the socket is full
		}
	}
	until(t, func() bool {
		return len(x.ba.copies.mapped.list) == maxRegions && x.ba.copies.mapped.list[maxRegions-1].gen == 500
	}, x.b)
	require.Empty(t, x.rb.failures)
	// A message in one of them, with an address that it does not have.
	src := text(2 * pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	c := x.ab.copies.own.at(x.ab.copies.own.find(id(1)))
	c.src = x.ba.copies.mapped.list[7].regionRef
	require.Equal(t, ucs.RemoteAccess, x.fetch(1, len(src), make([]byte, len(src))))
}

// TestAnyCopyMayChange: whatever a peer writes into the copy tables, and when, no access leaves the buffers, no loop is
// endless, and the messages of another peer arrive. The sides copy through mappings only: with system calls, a wrong
// address would be one of this process.
func TestAnyCopyMayChange(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 8
	}
	for seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 9))
		x := newFetcher(t)
		x.noSystemCalls()
		other := openTest(t, new(recorder))
		good := connectTest(t, other, x.b)
		const most = 5 * pieceSize
		src, dst := allocated(t, x.a, most, uct.MemRemote), allocated(t, x.b, most+2*pieceSize, uct.MemRemote)
		copy(src.Bytes(), text(most))
		v := &vandal{rnd: rnd}
		for k := 0; k < 200 && len(x.rb.failures) == 0; k++ {
			n := 1 + rnd.IntN(most)
			beside := bytes.Repeat([]byte{0xca}, len(dst.Bytes()))
			copy(dst.Bytes(), beside)
			into := dst.Bytes()[pieceSize:][:n:n]
			x.ab.Expose(id(k), src.Bytes()[:n], src)
			if x.ab.copies.own.seg != nil && v.pages == nil {
				v.pages = append(v.pages, x.ab.copies.own.seg.Bytes())
			}
			x.ended = x.ended[:0]
			st := x.b.Fetch(x.ba.Source, id(k), uint64(n), into, dst, uct.Token(k))
			for range 20 {
				if st != ucs.InProgress || len(x.ended) > 0 {
					break
				}
				if rnd.IntN(3) == 0 {
					v.strike()
				}
				x.a.Progress(64)
				x.b.Progress(64)
			}
			if st == ucs.InProgress && len(x.ended) == 0 {
				x.b.d.closeWait = 1
				x.b.CancelFetch(uct.Token(k), true)
			}
			x.ab.Withdraw(id(k))
			require.Zero(t, x.ab.copies.exposed)
			require.Equal(t, beside[:pieceSize], dst.Bytes()[:pieceSize], "seed %d", seed)
			require.Equal(t, beside[pieceSize+most:], dst.Bytes()[pieceSize+most:], "seed %d", seed)
		}
		was := x.rb.n
		require.Equal(t, ucs.OK, good.AMShort(1, 0, nil))
		until(t, func() bool { return x.rb.n == was+1 }, x.b, other)
	}
}

// TestImpossiblePieces: an entry with more pieces than its message has ends the connection.
func TestImpossiblePieces(t *testing.T) {
	for name, spoil := range map[string]func(c *copyEntry){
		"owner's":      func(c *copyEntry) { c.state.Store(uint64(c.load() + 100*ownersPiece)) },
		"peer's":       func(c *copyEntry) { c.state.Store(uint64(c.load() + 100*peersPiece)) },
		"all, and one": func(c *copyEntry) { c.state.Store(uint64(c.load()&^(1<<stepShift-1) | 8*peersPiece | ownersPiece)) },
		"copied":       func(c *copyEntry) { c.state.Store(uint64(c.load()&^(1<<stepShift-1) | 8*peersPiece)); c.done.Add(9) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newFetcher(t)
			src := text(8 * pieceSize)
			require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
			require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), make([]byte, len(src)), nil, 1))
			until(t, func() bool { return x.ba.copies.fetches[0].entry != nil }, x.b)
			spoil(x.ba.copies.fetches[0].entry)
			until(t, func() bool { return len(x.rb.failures) > 0 }, x.b)
			require.Equal(t, []uct.Event{{Token: 1, Status: ucs.Canceled}}, x.ended)
			require.ErrorContains(t, x.rb.failures[0].Err, "impossible number of pieces")
		})
	}
}
