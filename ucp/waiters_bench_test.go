package ucp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// BenchmarkWaiters is the rate of blocking operations over all goroutines of one
// worker: each sends eight bytes and waits for the answer, from the worker itself
// (self) or from an echo on another one (shm). Both workers spin, so that the rate
// is that of the waiting and not of the system's sleeping. Eight goroutines lose at
// most half of what one does: of_one, from rounds in turn, is at least 0.5.
func BenchmarkWaiters(b *testing.B) {
	for _, tr := range []string{"self", "shm"} {
		for _, n := range []int{1, 2, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d", tr, n), func(b *testing.B) { benchWaiters(b, tr, n) })
		}
	}
}

func benchWaiters(b *testing.B, tr string, n int) {
	w, peer, ep := spinningPair(b, tr)
	ctx, cancel := context.WithCancel(b.Context())
	var echo sync.WaitGroup
	if w != peer {
		back, err := peer.NewEndpoint(w.Address(), ucp.EndpointConfig{})
		require.NoError(b, err)
		echo.Go(func() {
			in := make([]byte, 8)
			for {
				m, err := peer.TagRecv(in, 0, 0).Wait(ctx)
				if err != nil {
					return
				}
				back.TagSend(in, m.Tag)
			}
		})
	}
	run := func(n, each int) time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		for g := range n {
			wg.Go(func() {
				in, out := make([]byte, 8), make([]byte, 8)
				for range each {
					r := w.TagRecv(in, ucp.Tag(g), exact)
					ep.TagSend(out, ucp.Tag(g))
					if _, err := r.Wait(ctx); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		return time.Since(began)
	}
	const rounds = 20
	var one, all time.Duration
	each := b.N/n/rounds + 1
	b.ReportAllocs()
	b.ResetTimer()
	for range rounds {
		all += run(n, each)
		b.StopTimer()
		one += run(1, each*n)
		b.StartTimer()
	}
	b.StopTimer()
	b.ReportMetric(float64(rounds*each*n)/all.Seconds()/1e6, "M/s")
	b.ReportMetric(one.Seconds()/all.Seconds(), "of_one")
	cancel()
	echo.Wait()
}

// spinningPair is newPair with workers that never sleep.
func spinningPair(b testing.TB, tr string) (w, peer *ucp.Worker, ep ucp.Endpoint) {
	b.Helper()
	c, err := ucp.Open(ucp.Config{Providers: provider(tr)})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, c.Close()) })
	w, err = c.NewWorker(ucp.WorkerConfig{Spin: -1})
	require.NoError(b, err)
	peer = w
	if tr != "self" { // who answers is one goroutine
		peer, err = c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle, Spin: -1})
		require.NoError(b, err)
	}
	ep, err = w.NewEndpoint(peer.Address(), ucp.EndpointConfig{})
	require.NoError(b, err)
	return w, peer, ep
}
