package ucp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
)

// ownCounts is how often the owner counts, while others do.
const ownCounts = 20_000

// count adds n to each of four words, in all ways in which that is possible.
func count(t *testing.T, k *ucp.RemoteKey, n int) {
	ctx := context.Background()
	wide, err := ucp.AtomicAt[uint64](k, 0)
	require.NoError(t, err)
	half, err := ucp.AtomicAt[uint32](k, 8)
	require.NoError(t, err)
	loop, err := ucp.AtomicAt[uint64](k, 16)
	require.NoError(t, err)
	halfLoop, err := ucp.AtomicAt[uint32](k, 24)
	require.NoError(t, err)
	old, old32 := uint64(0), uint32(0)
	for i := range n {
		if i%2 == 0 {
			require.NoError(t, wide.Add(1).Wait(ctx))
			require.NoError(t, half.Add(1).Wait(ctx))
		} else {
			_, err = wide.FetchAdd(1).Wait(ctx)
			require.NoError(t, err)
			_, err = half.FetchAdd(1).Wait(ctx)
			require.NoError(t, err)
		}
		for done := false; !done; {
			got, err := loop.CompareAndSwap(old, old+1).Wait(ctx)
			require.NoError(t, err)
			if done = got == old; done {
				got++
			}
			old = got
		}
		for done := false; !done; {
			got, err := halfLoop.CompareAndSwap(old32, old32+1).Wait(ctx)
			require.NoError(t, err)
			if done = got == old32; done {
				got++
			}
			old32 = got
		}
	}
}

// heapUser is a worker of this process with the registered memory of another one.
func heapUser(t *testing.T, l *lender) (*ucp.Worker, ucp.Endpoint, *ucp.RemoteKey) {
	c, err := ucp.Open(ucp.Config{Providers: transports.All()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	e, err := w.NewEndpoint(l.address, ucp.EndpointConfig{})
	require.NoError(t, err)
	k, err := e.UnpackKey(l.r)
	if err != nil { // copies between processes are forbidden here
		require.ErrorIs(t, err, ucp.ErrUnreachable)
		t.Skip(err)
	}
	return w, e, k
}

// TestAtomicsOnHeapOfAnotherProcess: the owner's worker carries them out, atomically with the owner's own ones and with
// those of other initiators.
func TestAtomicsOnHeapOfAnotherProcess(t *testing.T) {
	t.Setenv("UCX_TLS", "self,shm")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	l := startLender(t)
	_, e, k := heapUser(t, l)
	heapOps[uint64](t, ctx, k, 64)
	heapOps[uint32](t, ctx, k, 72)

	const initiators, each = 3, 5000
	_, err := l.in.Write([]byte("count\n"))
	require.NoError(t, err)
	done := make(chan struct{})
	for i := range initiators {
		w, e, k := heapUser(t, l)
		go func() {
			defer func() { done <- struct{}{} }()
			count(t, k, each)
			assert.NoError(t, e.Flush().Wait(ctx), "initiator %d of %v", i, w)
		}()
	}
	for range initiators {
		<-done
	}
	l.line("counted")
	const want = initiators*each + ownCounts
	for _, off := range []uint64{0, 16} {
		got, err := k.GetUint64(off).Wait(ctx)
		require.NoError(t, err)
		require.EqualValues(t, want, got, "at %d", off)
	}
	for _, off := range []uint64{8, 24} {
		a, err := ucp.AtomicAt[uint32](k, off)
		require.NoError(t, err)
		got, err := a.Load().Wait(ctx)
		require.NoError(t, err)
		require.EqualValues(t, want, got, "at %d", off)
	}

	t.Run("puts and atomics", func(t *testing.T) { // in the order of posting, with a fence between them
		a, err := ucp.AtomicAt[uint64](k, 128)
		require.NoError(t, err)
		for i := range uint64(1000) {
			require.NoError(t, k.PutUint64(i, 128).Wait(ctx))
			e.Fence()
			require.NoError(t, a.Add(1).Wait(ctx))
			require.NoError(t, e.Flush().Wait(ctx))
			got, err := k.GetUint64(128).Wait(ctx)
			require.NoError(t, err)
			require.Equal(t, i+1, got)
		}
	})
	t.Run("gate", func(t *testing.T) {
		if race.Enabled {
			t.Skip("the race detector allocates")
		}
		a, err := ucp.AtomicAt[uint64](k, 128)
		require.NoError(t, err)
		h, err := ucp.AtomicAt[uint32](k, 136)
		require.NoError(t, err)
		run := func() {
			_, _ = a.FetchAdd(1).Wait(ctx)
			_, _ = h.CompareAndSwap(1, 2).Wait(ctx)
			_, _ = a.Swap(3).Wait(ctx)
			_ = a.Xor(1).Wait(ctx)
			_ = h.Or(1).Wait(ctx)
			_ = e.Flush().Wait(ctx)
		}
		for range 100 {
			run()
		}
		require.Zero(t, testing.AllocsPerRun(500, run))
	})
	t.Run("closed", func(t *testing.T) {
		a, err := ucp.AtomicAt[uint64](k, 128)
		require.NoError(t, err)
		require.Equal(t, "closed <nil>", l.ask("close registered", "closed"))
		_, err = a.FetchAdd(1).Wait(ctx)
		require.ErrorIs(t, err, ucp.ErrRemoteAccess)
		require.ErrorIs(t, k.Put(make([]byte, 100), 0).Wait(ctx), ucp.ErrRemoteAccess)
		require.ErrorIs(t, k.Get(make([]byte, 100), 0).Wait(ctx), ucp.ErrRemoteAccess)
		require.NoError(t, a.Add(1).Wait(ctx), "it was sent")
		require.ErrorIs(t, e.Flush().Wait(ctx), ucp.ErrRemoteAccess)
		require.NoError(t, e.Flush().Wait(ctx), "once")
	})
}

// heapOps tries each operation on the word at off.
func heapOps[T ucp.Word](t *testing.T, ctx context.Context, k *ucp.RemoteKey, off uint64) {
	a, err := ucp.AtomicAt[T](k, off)
	require.NoError(t, err)
	var want T
	check := func(f ucp.Fetch[T], next T) {
		got, err := f.Wait(ctx)
		require.NoError(t, err)
		require.Equal(t, want, got)
		want = next
	}
	post := func(r ucp.Request, next T) {
		require.NoError(t, r.Wait(ctx))
		want = next
	}
	check(a.Swap(0b1100), 0b1100)
	check(a.FetchAdd(3), 0b1111)
	check(a.FetchAnd(0b1010), 0b1010)
	check(a.FetchOr(0b0101), 0b1111)
	check(a.FetchXor(0b1001), 0b0110)
	check(a.CompareAndSwap(1, 99), 0b0110)
	check(a.CompareAndSwap(0b0110, 7), 7)
	post(a.Add(^T(0)), 6)
	post(a.And(4), 4)
	post(a.Or(3), 7)
	post(a.Xor(2), 5)
	check(a.Load(), 5)
	_, err = ucp.AtomicAt[T](k, off+1)
	require.ErrorIs(t, err, ucp.ErrInvalid)
}
