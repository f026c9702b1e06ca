package ucp_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// A goroutine that posts gets the lock of a worker of ThreadMulti within a few passes,
// also where it shares a processor with the one that progresses and holds the lock
// nearly all the time. The work done meanwhile is counted, not time.
func TestPostIsNotStarvedByProgress(t *testing.T) {
	for name, progress := range map[string]func(ctx context.Context, w *ucp.Worker){
		"Run": func(ctx context.Context, w *ucp.Worker) { _ = w.Run(ctx) },
		"Progress": func(ctx context.Context, w *ucp.Worker) {
			for ctx.Err() == nil {
				w.Progress()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, _, ep := spinningPair(t, "self")
			var handled atomic.Uint64
			require.NoError(t, w.HandleAM(1, func(*ucp.AM) {
				handled.Add(1)
				ep.AMSend(1, nil, nil) // there is always work
			}))
			for range 8 {
				ep.AMSend(1, nil, nil)
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			ctx, cancel := context.WithCancel(t.Context())
			var runs sync.WaitGroup
			runs.Go(func() { progress(ctx, w) })
			const posts = 40
			meanwhile := uint64(0)
			for range posts {
				runtime.Gosched()
				before := handled.Load()
				w.TagProbe(0, 0)
				meanwhile += handled.Load() - before
			}
			cancel()
			runs.Wait()
			t.Logf("%d of %d messages were handled while %d probes waited", meanwhile, handled.Load(), posts)
			require.Positive(t, handled.Load())
			require.Less(t, meanwhile, uint64(posts*1000))
		})
	}
}
