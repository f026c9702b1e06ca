package ucp_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
)

// skipUnderRace: the detector allocates and slows down.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if race.Enabled {
		t.Skip("allocations are not ours under the race detector")
	}
}

// Nor does a rendezvous, from and to memory of any kind.
func TestGateRendezvousAllocations(t *testing.T) {
	skipUnderRace(t)
	ctx := context.Background()
	c, err := ucp.Open(ucp.Config{Providers: provider("shm")})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	a, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	b, err := c.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	ep, err := a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	const room = 256 << 10
	m, err := c.Allocate(2*room, ucp.MemConfig{})
	require.NoError(t, err)
	memory := map[string][2][]byte{"heap": {make([]byte, room), make([]byte, room)}, "allocated": {m.Bytes()[:room], m.Bytes()[room:]}}
	for name, buf := range memory {
		for _, size := range []int{7 << 10, 64 << 10, room} {
			f := func() {
				r := b.TagRecv(buf[1][:size], 1, exact)
				s := ep.TagSend(buf[0][:size], 1)
				for !r.Done() || !s.Done() {
					a.Progress()
					b.Progress()
				}
				_, err := r.Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, s.Wait(ctx))
			}
			for range 20 {
				f()
			}
			assert.Zero(t, testing.AllocsPerRun(100, f), "%s, %d bytes", name, size)
		}
	}
}

// No operation of a steady flow allocates, whatever its size, expected or not.
func TestGateAllocations(t *testing.T) {
	skipUnderRace(t)
	t.Setenv("UCX_RNDV_THRESH", "64k")
	ctx := context.Background()
	for _, tr := range []string{"self", "shm"} {
		a, b, ep := newPair(t, tr, ucp.ThreadSingle)
		drive := func(done func() bool) {
			for !done() {
				a.Progress()
				b.Progress()
			}
		}
		for _, size := range []int{0, 8, 1024, 64 << 10} {
			out, in := make([]byte, size), make([]byte, size)
			expected := func() {
				r := b.TagRecv(in, 1, exact)
				s := ep.TagSend(out, 1)
				drive(r.Done)
				_, err := r.Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, s.Wait(ctx))
			}
			unexpected := func() {
				s := ep.TagSend(out, 1)
				drive(s.Done)
				for range 3 {
					b.Progress()
				}
				r := b.TagRecv(in, 1, exact)
				drive(r.Done)
				_, err := r.Wait(ctx)
				require.NoError(t, err)
			}
			half := size / 2
			outs, ins := [][]byte{out[:half], nil, out[half:]}, [][]byte{in[:size-half], in[size-half:]}
			pieces := func() {
				r := b.TagRecvV(ins, 1, exact)
				s := ep.TagSendV(outs, 1)
				drive(r.Done)
				_, err := r.Wait(ctx)
				require.NoError(t, err)
				require.NoError(t, s.Wait(ctx))
			}
			for name, f := range map[string]func(){"expected": expected, "unexpected": unexpected, "pieces": pieces} {
				for range 20 {
					f()
				}
				assert.Zero(t, testing.AllocsPerRun(100, f), "%s, %d bytes, %s", tr, size, name)
			}
		}
		in := make([]byte, 64)
		forms := map[string]func(){
			"inline": func() {
				var p [16]byte
				ep.TagSendInline(p[:], 1)
			},
			"uint64": func() { ep.TagSendUint64(1, 1) },
			"flush":  func() { require.NoError(t, ep.Flush().Wait(ctx)); require.NoError(t, a.Flush().Wait(ctx)) },
			"fence":  func() { ep.Fence(); a.Fence() },
			"arrays": func() {
				require.NoError(t, ucp.WaitAll(ctx, []ucp.Request{ep.TagSendUint64(1, 1), ep.TagSendUint64(2, 1)}, nil))
			},
		}
		for name, f := range forms {
			g := func() {
				f()
				for r := b.TagRecv(in, 1, exact); ; r = b.TagRecv(in, 1, exact) {
					for range 8 {
						b.Progress()
					}
					if !r.Done() {
						r.Cancel()
						r.Drop()
						return
					}
					_, err := r.Wait(ctx)
					require.NoError(t, err)
				}
			}
			for range 20 {
				g()
			}
			assert.Zero(t, testing.AllocsPerRun(100, g), "%s, %s", tr, name)
		}
	}
}

// An endpoint that was not used costs little: its address and a slot.
func TestGateUnusedEndpoints(t *testing.T) {
	skipUnderRace(t)
	n := 1_000_000
	if testing.Short() {
		n = 100_000
	}
	c, err := ucp.Open(ucp.Config{Providers: provider("shm")})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	peer, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
	require.NoError(t, err)
	addrs := manyAddresses(t, peer.Address(), n)

	before := heap()
	start := time.Now()
	eps := make([]ucp.Endpoint, n)
	for i := range n {
		eps[i], err = w.NewEndpoint(addrs(i), ucp.EndpointConfig{})
		require.NoError(t, err)
	}
	took := time.Since(start)
	bytes := float64(heap()-before)/float64(n) - 16 // the handles are the program's
	t.Logf("%d endpoints to distinct addresses: %.1f bytes each, %v in all", n, bytes, took)
	assert.LessOrEqual(t, bytes, 160.0)
	runtime.KeepAlive(eps)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Request.Wait on a request that is done must inline; gcassert holds the
// comment in request.go, this the cost.
func TestGateWaitDone(t *testing.T) {
	skipUnderRace(t)
	ctx := context.Background()
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = ucp.Request{}.Wait(ctx) }))
}
