package shm

import (
	"bytes"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// fetcher is a couple of which b fetches what a exposes.
type fetcher struct {
	*couple
	ended []uct.Event
}

func newFetcher(t *testing.T) *fetcher {
	x := &fetcher{couple: newCouple(t)}
	x.rb.onEvents = func(es []uct.Event) { x.ended = append(x.ended, es...) }
	return x
}

// id returns the number of the k-th exposure.
func id(k int) uint64 { return uint64(k/100+1)<<32 | uint64(k%100+1) }

// text returns n bytes that differ from piece to piece.
func text(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>15 ^ i)
	}
	return b
}

// fetch fetches len(dst) bytes of exposure k, of n bytes, and returns the status at its end.
func (x *fetcher) fetch(k, n int, dst []byte) uct.Status {
	st := x.b.Fetch(x.ba.Source, id(k), uint64(n), dst, nil, uct.Token(k))
	if st != ucs.InProgress {
		return st
	}
	x.ended = x.ended[:0]
	until(x.t, func() bool { return len(x.ended) > 0 }, x.b)
	require.Equal(x.t, uct.Token(k), x.ended[0].Token)
	require.Len(x.t, x.ended, 1)
	return x.ended[0].Status
}

func TestFetch(t *testing.T) {
	x := newFetcher(t)
	for k, n := range []int{1, 4096, pieceSize - 1, pieceSize, pieceSize + 1, 5*pieceSize + 17} {
		for _, want := range []int{1, n/2 + 1, n} {
			src, dst := text(n), make([]byte, n)
			require.Equal(t, ucs.OK, x.ab.Expose(id(10*k), src, nil))
			require.Equal(t, ucs.OK, x.fetch(10*k, n, dst[:want]), "%d bytes of %d", want, n)
			require.True(t, bytes.Equal(src[:want], dst[:want]))
			require.Equal(t, make([]byte, n-want), dst[want:])
			require.Equal(t, ucs.Busy, x.ab.Withdraw(id(10*k)), "it was fetched")
			require.Equal(t, ucs.OK, x.ab.Withdraw(id(10*k)))
		}
	}
}

// TestFetchRefused: what was never exposed, or is not any more, is not fetched, and nothing is written.
func TestFetchRefused(t *testing.T) {
	x := newFetcher(t)
	src, dst := text(4*pieceSize), make([]byte, 4*pieceSize)
	require.Equal(t, ucs.Unsupported, x.fetch(1, len(src), dst), "no table")
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	for name, st := range map[string]uct.Status{
		"another id":         x.fetch(2, len(src), dst),
		"another generation": x.b.Fetch(x.ba.Source, id(1)+1<<32, uint64(len(src)), dst, nil, 0),
		"another length":     x.fetch(1, len(src)+1, dst),
		"more than it has":   x.fetch(1, len(src), make([]byte, len(src)+1)),
		"nothing":            x.fetch(1, len(src), nil),
	} {
		require.Equal(t, ucs.Unsupported, st, name)
	}
	require.Equal(t, ucs.Canceled, x.b.Fetch(99, id(1), uint64(len(src)), dst, nil, 0), "no such connection")
	require.Equal(t, ucs.OK, x.ab.Withdraw(id(1)))
	require.Equal(t, ucs.Unsupported, x.fetch(1, len(src), dst), "withdrawn")
	require.Equal(t, make([]byte, len(dst)), dst)
}

// TestFetchWithdrawn: a fetch ends soon after its exposure was withdrawn, also if the entry is used anew.
func TestFetchWithdrawn(t *testing.T) {
	x := newFetcher(t)
	for _, anew := range []bool{false, true} {
		for calls := range 4 {
			k := 1000 * (calls + 1)
			src, dst := text(16*pieceSize), make([]byte, 16*pieceSize)
			require.Equal(t, ucs.OK, x.ab.Expose(id(k), src, nil))
			if calls == 0 { // the table is unread, so that the copy has not begun
				require.Equal(t, ucs.OK, x.ab.Withdraw(id(k)))
				require.Equal(t, ucs.Unsupported, x.fetch(k, len(src), dst))
				continue
			}
			st := x.b.Fetch(x.ba.Source, id(k), uint64(len(src)), dst, nil, uct.Token(k))
			require.Equal(t, ucs.InProgress, st)
			for range calls - 1 {
				x.b.continueFetches() // a does not help
			}
			copied := x.ba.copies.fetches[0].own * pieceSize
			require.Equal(t, []uint64{0, 8, 12, 14}[calls]*pieceSize, copied)
			require.Equal(t, ucs.OK, x.ab.Withdraw(id(k)))
			if anew {
				require.Equal(t, ucs.OK, x.ab.Expose(id(k)+1<<32, src, nil))
			}
			x.ended = x.ended[:0]
			until(t, func() bool { return len(x.ended) > 0 }, x.b)
			require.Equal(t, []uct.Event{{Token: uct.Token(k), Status: ucs.Canceled}}, x.ended)
			require.True(t, bytes.Equal(make([]byte, uint64(len(dst))-copied), dst[copied:]))
			require.Equal(t, ucs.OK, x.ab.Withdraw(id(k)+1<<32))
		}
	}
}

// TestFetchConnectionEnds: the fetches of a connection end with it.
func TestFetchConnectionEnds(t *testing.T) {
	for name, end := range map[string]func(x *fetcher){
		"peer closes":  func(x *fetcher) { require.NoError(t, x.a.Close()) },
		"disconnected": func(x *fetcher) { x.b.Disconnect(x.ba.Source) },
	} {
		t.Run(name, func(t *testing.T) {
			x := newFetcher(t)
			src := text(64 * pieceSize)
			for k := range 6 {
				require.Equal(t, ucs.OK, x.ab.Expose(id(k), src, nil))
				require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(k), uint64(len(src)), make([]byte, len(src)), nil, uct.Token(k)))
			}
			end(x)
			until(t, func() bool { return len(x.rb.failures) > 0 }, x.b)
			require.Len(t, x.ended, 6, "before the failure is reported")
			for _, e := range x.ended {
				require.Equal(t, ucs.Canceled, e.Status)
			}
			require.Empty(t, x.b.fetching)
		})
	}
}

// TestFetchCancel: a canceled fetch has no event and writes no more.
func TestFetchCancel(t *testing.T) {
	x := newFetcher(t)
	src := text(16 * pieceSize)
	for k := range 3 {
		dst := make([]byte, len(src))
		require.Equal(t, ucs.OK, x.ab.Expose(id(k), src, nil))
		require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(k), uint64(len(src)), dst, nil, uct.Token(k)))
		for range k {
			x.b.continueFetches()
		}
		require.Equal(t, ucs.OK, x.b.CancelFetch(uct.Token(k), false))
		require.Equal(t, ucs.OK, x.b.CancelFetch(uct.Token(k), false), "no such fetch")
		before := bytes.Clone(dst)
		for range 10 {
			x.b.continueFetches()
		}
		require.Equal(t, before, dst)
		require.Equal(t, ucs.OK, x.ab.Withdraw(id(k)), "it was not fetched")
	}
	require.Empty(t, x.ended)
}

// TestFetchWorkerCloses: nobody copies to the buffer of a fetch after its worker was closed.
func TestFetchWorkerCloses(t *testing.T) {
	x := newFetcher(t)
	src, dst := text(8*pieceSize), make([]byte, 8*pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), dst, nil, 1))
	until(t, func() bool { return x.ba.copies.fetches[0].entry != nil }, x.b)
	require.Equal(t, 1, x.a.help())
	require.NoError(t, x.b.Close())
	before := bytes.Clone(dst)
	require.Zero(t, x.a.help())
	require.Equal(t, before, dst)
}

// TestFetchGone: memory that its owner has unmapped, or never had.
func TestFetchGone(t *testing.T) {
	x := newFetcher(t)
	src := text(pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	x.ab.copies.own.at(x.ab.copies.own.find(id(1))).addr = 16
	require.Equal(t, ucs.RemoteAccess, x.fetch(1, len(src), make([]byte, len(src))))
}

// TestExposeMany: exposures that find no entry are refused, and all entries can be used.
func TestExposeMany(t *testing.T) {
	x := newFetcher(t)
	src := text(8)
	refused := 0
	for k := range numEntries {
		require.Equal(t, ucs.OK, x.ab.Expose(uint64(k), src, nil))
	}
	for k := range numEntries {
		if x.ab.Expose(1<<32|uint64(k), src, nil) == ucs.NoResource {
			refused++
		}
	}
	require.Equal(t, numEntries, refused)
	for k := range numEntries {
		require.Equal(t, ucs.OK, x.ab.Withdraw(uint64(k)))
		require.Equal(t, ucs.OK, x.ab.Expose(1<<32|uint64(k), src, nil))
	}
}

// TestFetchBeforeSleep: a worker does not sleep while it copies.
func TestFetchBeforeSleep(t *testing.T) {
	x := newFetcher(t)
	src := text(8 * pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), make([]byte, len(src)), nil, 1))
	until(t, func() bool { return x.b.Arm(uct.EventRecv) == ucs.OK || len(x.ended) > 0 }, x.b)
	require.Len(t, x.ended, 1)
}

// TestFetchWakes: a fetch wakes the worker that is asleep: another goroutine may have posted it.
func TestFetchWakes(t *testing.T) {
	x := newFetcher(t)
	src := text(8 * pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	until(t, func() bool { return x.ba.copies.peer.seg != nil }, x.b)
	require.Equal(t, ucs.OK, x.b.Arm(uct.EventRecv))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), make([]byte, len(src)), nil, 1))
	n, err := x.b.epoll.Wait(x.b.events[:], 0)
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// TestGateFetch: neither side allocates.
func TestGateFetch(t *testing.T) {
	x := newFetcher(t)
	src, dst := text(3*pieceSize), make([]byte, 3*pieceSize)
	x.rb.onEvents = nil
	run := func() {
		if x.ab.Expose(id(1), src, nil) != ucs.OK {
			t.Error("refused")
		}
		if st := x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), dst, nil, 1); st != ucs.InProgress {
			t.Error(st)
		}
		for len(x.b.fetching) > 0 {
			x.b.continueFetches()
		}
		x.ab.Withdraw(id(1))
	}
	run()
	require.Zero(t, testing.AllocsPerRun(100, run))
}

// TestFetchHelped: both sides copy, each piece once.
func TestFetchHelped(t *testing.T) {
	x := newFetcher(t)
	for k, n := range []int{3*pieceSize - 1, 3 * pieceSize, 3*pieceSize + 1, 40*pieceSize + 5} {
		for _, want := range []int{n, n - pieceSize + 1} {
			src, dst := text(n), make([]byte, n)
			require.Equal(t, ucs.OK, x.ab.Expose(id(10*k), src, nil))
			c := x.ab.copies.own.at(x.ab.copies.own.find(id(10 * k)))
			before := c.done.Load()
			require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(10*k), uint64(n), dst[:want], nil, 1))
			x.ended = x.ended[:0]
			until(t, func() bool { return len(x.ended) > 0 }, x.a, x.b)
			require.Equal(t, []uct.Event{{Token: 1}}, x.ended)
			require.True(t, bytes.Equal(src[:want], dst[:want]))
			require.Equal(t, make([]byte, n-want), dst[want:])
			if want > 2*pieceSize {
				require.NotEqual(t, before, c.done.Load(), "the owner has copied none")
			}
			require.Equal(t, ucs.Busy, x.ab.Withdraw(id(10*k)))
		}
	}
}

// stuck begins a fetch of four pieces of which the owner has claimed one, and does not copy it.
func (x *fetcher) stuck(k int) (c *copyEntry, dst []byte, guard uint64) {
	src, dst := text(4*pieceSize), make([]byte, 4*pieceSize)
	require.Equal(x.t, ucs.OK, x.ab.Expose(id(k), src, nil))
	require.Equal(x.t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(k), uint64(len(src)), dst, nil, uct.Token(k)))
	for x.ba.copies.fetches[len(x.ba.copies.fetches)-1].entry == nil {
		x.b.continueFetches()
	}
	c = x.ab.copies.own.at(x.ab.copies.own.find(id(k)))
	s := c.load()
	require.True(x.t, c.change(s, s+ownersPiece))
	guard = c.guard
	x.ended = x.ended[:0]
	return c, dst, guard
}

// TestFetchOwnerIsSlow: a fetch waits for a piece that the owner copies, and so does its cancel; a copy that the owner
// begins after the cancel fails.
func TestFetchOwnerIsSlow(t *testing.T) {
	for _, cancel := range []bool{false, true} {
		x := newFetcher(t)
		c, dst, guard := x.stuck(1)
		if cancel {
			require.Equal(t, ucs.Busy, x.b.CancelFetch(1, false))
		}
		for range 100 {
			x.b.Progress(64)
		}
		require.Empty(t, x.ended)
		before := bytes.Clone(dst)
		err := shmem.ProcessWriteGuarded(x.ab.pid, uintptr(guard), make([]byte, pieceSize), uintptr(addressOfBytes(dst)))
		if cancel {
			require.ErrorIs(t, err, unix.EFAULT)
			require.Equal(t, before, dst)
		} else {
			require.NoError(t, err)
		}
		c.done.Add(1)
		until(t, func() bool { return len(x.ended) > 0 }, x.b)
		if cancel {
			require.Equal(t, []uct.Event{{Token: 1, Status: ucs.Canceled}}, x.ended)
		} else {
			require.Equal(t, []uct.Event{{Token: 1}}, x.ended)
		}
		require.Empty(t, x.b.fetching)

		// The connection goes on, with another guard page.
		src, dst := text(8*pieceSize), make([]byte, 8*pieceSize)
		require.Equal(t, ucs.OK, x.ab.Expose(id(2), src, nil))
		require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(2), uint64(len(src)), dst, nil, 2))
		x.ended = x.ended[:0]
		until(t, func() bool { return len(x.ended) > 0 }, x.a, x.b)
		require.Equal(t, []uct.Event{{Token: 2}}, x.ended)
		require.True(t, bytes.Equal(src, dst))
	}
}

// TestFetchesInTurn: while the owner copies the last piece of a message, the next fetch does not begin, for some passes.
func TestFetchesInTurn(t *testing.T) {
	x := newFetcher(t)
	c, _, _ := x.stuck(1)
	src, dst := text(pieceSize), make([]byte, pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(2), src, nil))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(2), uint64(len(src)), dst, nil, 2))
	for range ownerPasses / 2 {
		x.b.continueFetches()
	}
	require.Empty(t, x.ended)
	require.Nil(t, x.ba.copies.fetches[1].entry)
	for range ownerPasses {
		x.b.continueFetches()
	}
	require.Equal(t, []uct.Event{{Token: 2}}, x.ended, "a slow owner does not hold up the others")
	c.done.Add(1)
	until(t, func() bool { return len(x.ended) == 2 }, x.b)
	require.True(t, bytes.Equal(src, dst))
}

// TestFetchOwnerFails: where the owner cannot copy its piece, the fetch fails.
func TestFetchOwnerFails(t *testing.T) {
	x := newFetcher(t)
	c, _, _ := x.stuck(1)
	c.failed.Store(id(1))
	c.done.Add(1)
	until(t, func() bool { return len(x.ended) > 0 }, x.b)
	require.Equal(t, []uct.Event{{Token: 1, Status: ucs.RemoteAccess}}, x.ended)
}

// TestHelpGarbage: an owner does not trust what the peer writes into its table.
func TestHelpGarbage(t *testing.T) {
	x := newFetcher(t)
	src, dst := text(8*pieceSize), make([]byte, 8*pieceSize)
	require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
	require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), dst, nil, 1))
	until(t, func() bool { return x.ba.copies.fetches[0].entry != nil }, x.b)
	c, own := x.ba.copies.fetches[0].entry, &x.ab.copies.own
	state := c.state.Load()
	for name, spoil := range map[string]func(){
		"no entry":         func() { own.active().Store(0) },
		"beyond the table": func() { own.active().Store(numEntries + 1) },
		"huge":             func() { own.active().Store(1 << 63) },
		"free entry":       func() { own.active().Store(uint64(own.find(id(1)) + 2)) },
		"peer's pieces":    func() { c.state.Store(state | 8) },
		"owner's pieces":   func() { c.state.Store(state | 9*uint64(ownersPiece)) },
		"all pieces":       func() { c.state.Store(state | maxPieces | maxPieces*uint64(ownersPiece)) },
		"another step":     func() { c.state.Store(uint64(generation(id(1)) | entryExposed)) },
		"another exposure": func() { c.state.Store(state + 1<<generationShift) },
		"no guard":         func() { c.guard = 0 },
		"bad guard":        func() { c.guard = 16; x.ab.copies.writes = false },
		"nothing wanted":   func() { c.want = 0 },
	} {
		own.active().Store(uint64(own.find(id(1)) + 1))
		spoil()
		require.Zero(t, x.a.help(), name)
		c.state.Store(state)
		c.want, c.guard = uint64(len(dst)), x.ba.copies.guardAddress()
	}
	own.active().Store(uint64(own.find(id(1)) + 1))
	c.want = 1 << 62
	c.state.Store(state | 7)
	require.Equal(t, 1, x.a.help())
	require.Zero(t, x.a.help(), "it has eight pieces only")
	c.dst = 16
	c.state.Store(state)
	require.Equal(t, 1, x.a.help())
	require.Equal(t, id(1), c.failed.Load())
}

// TestFetchOwnerMapsAndStops: a peer that stops between its claim of a piece and the copy of it may write to the buffer
// when it goes on, if it maps the buffer. The fetch ends nevertheless.
func TestFetchOwnerMapsAndStops(t *testing.T) {
	for name, end := range map[string]func(*fetcher) uct.Status{
		"cancel": func(x *fetcher) uct.Status {
			require.Equal(t, ucs.Busy, x.b.CancelFetch(1, false))
			require.Equal(t, ucs.Busy, x.b.CancelFetch(1, false), "still so")
			until(t, func() bool { return len(x.ended) > 0 }, x.b)
			require.Len(t, x.ended, 1)
			return x.ended[0].Status
		},
		"cancel, and wait": func(x *fetcher) uct.Status {
			require.Equal(t, ucs.Busy, x.b.CancelFetch(1, true))
			require.Empty(t, x.ended)
			return ucs.BufferExposed
		},
		"the copy fails": func(x *fetcher) uct.Status {
			x.ba.copies.fetches[0].addr, x.ba.copies.fetches[0].src = 16, regionRef{}
			until(t, func() bool { return len(x.ended) > 0 }, x.b)
			require.Len(t, x.ended, 1)
			return x.ended[0].Status
		},
		"disconnect": func(x *fetcher) uct.Status {
			x.b.Disconnect(x.ba.Source)
			until(t, func() bool { return len(x.rb.failures) > 0 }, x.b)
			require.Len(t, x.ended, 1)
			return x.ended[0].Status
		},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFetcher(t)
			x.b.d.closeWait = 20 * time.Millisecond
			src, dst := text(4*pieceSize), allocated(t, x.b, 4*pieceSize, uct.MemRemote)
			require.Equal(t, ucs.OK, x.ab.Expose(id(1), src, nil))
			require.Equal(t, ucs.InProgress, x.b.Fetch(x.ba.Source, id(1), uint64(len(src)), dst.Bytes(), dst, 1))
			for x.ba.copies.fetches[0].entry == nil {
				x.b.continueFetches()
			}
			c := x.ab.copies.own.at(x.ab.copies.own.find(id(1)))
			s := c.load()
			require.True(t, c.change(s, s+ownersPiece)) // the owner stops here
			require.Equal(t, ucs.BufferExposed, end(x))
			require.Empty(t, x.b.fetching)
		})
	}
}

// TestCopyAcross: memory that is not there any more ends no process.
func TestCopyAcross(t *testing.T) {
	page := unix.Getpagesize()
	gone, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	require.NoError(t, unix.Mprotect(gone[page:], unix.PROT_NONE))
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	require.NoError(t, file.Truncate(int64(2*page)))
	cut, err := unix.Mmap(int(file.Fd()), 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	require.NoError(t, file.Truncate(int64(page)))
	good := make([]byte, 2*page)
	for name, bad := range map[string][]byte{"no access": gone, "truncated": cut} {
		require.False(t, copyAcross(bad, good), name)
		require.False(t, copyAcross(good, bad), name)
		require.True(t, copyAcross(good[:page], bad), name)
		require.True(t, copyAcross(bad[:page], good), name)
		require.NoError(t, unix.Munmap(bad))
	}
	require.NoError(t, file.Close())
	require.Zero(t, testing.AllocsPerRun(10, func() { copyAcross(good, good[page:]) }))
}
