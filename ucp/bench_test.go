package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
)

const exact = ^ucp.Tag(0)

// provider gives the built-in transport of this name.
func provider(name string) []uct.Component {
	for _, c := range transports.All() {
		if c.Name() == name {
			return []uct.Component{c}
		}
	}
	return nil
}

// newPair gives a worker a and an endpoint of it to b: to itself over self, to a
// second worker of the process over others.
func newPair(tb testing.TB, transport string, mode ucp.ThreadMode) (a, b *ucp.Worker, ep ucp.Endpoint) {
	tb.Helper()
	c, err := ucp.Open(ucp.Config{Providers: provider(transport)})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, c.Close()) })
	a, err = c.NewWorker(ucp.WorkerConfig{Mode: mode})
	require.NoError(tb, err)
	b = a
	if transport != "self" {
		b, err = c.NewWorker(ucp.WorkerConfig{Mode: mode})
		require.NoError(tb, err)
	}
	ep, err = a.NewEndpoint(b.Address(), ucp.EndpointConfig{})
	require.NoError(tb, err)
	return a, b, ep
}

func BenchmarkTagPair(b *testing.B) {
	for _, tr := range []string{"self", "shm"} {
		for _, m := range []struct {
			name string
			mode ucp.ThreadMode
		}{{"single", ucp.ThreadSingle}, {"multi", ucp.ThreadMulti}} {
			b.Run(tr+"/"+m.name, func(b *testing.B) {
				_, peer, ep := newPair(b, tr, m.mode)
				ctx := context.Background()
				out, in := make([]byte, 8), make([]byte, 8)
				b.ReportAllocs()
				for b.Loop() {
					r := peer.TagRecv(in, 1, exact)
					ep.TagSend(out, 1)
					if _, err := r.Wait(ctx); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkTagSendUint64(b *testing.B) {
	w, _, ep := newPair(b, "self", ucp.ThreadSingle)
	ctx := context.Background()
	in := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		r := w.TagRecv(in, 1, exact)
		ep.TagSendUint64(7, 1)
		if _, err := r.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTagSendInline(b *testing.B) {
	w, _, ep := newPair(b, "self", ucp.ThreadSingle)
	ctx := context.Background()
	in := make([]byte, 8)
	b.ReportAllocs()
	for b.Loop() {
		var out [16]byte
		r := w.TagRecv(in, 1, exact)
		ep.TagSendInline(out[:8], 1)
		if _, err := r.Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFlush(b *testing.B) {
	w, _, ep := newPair(b, "shm", ucp.ThreadSingle)
	require.Positive(b, ep.MaxInline())
	ctx := context.Background()
	for name, order := range map[string]func() error{
		"endpoint": func() error { return ep.Flush().Wait(ctx) },
		"worker":   func() error { return w.Flush().Wait(ctx) },
		"fence":    func() error { w.Fence(); return nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := order(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkIdleProgress(b *testing.B) {
	for _, tr := range []string{"self", "shm"} {
		b.Run(tr, func(b *testing.B) {
			w, _, ep := newPair(b, tr, ucp.ThreadSingle)
			require.Positive(b, ep.MaxInline())
			for b.Loop() {
				w.Progress()
			}
		})
	}
}

func BenchmarkUnexpected(b *testing.B) {
	w, _, ep := newPair(b, "self", ucp.ThreadSingle)
	ctx := context.Background()
	out, in := make([]byte, 1024), make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		ep.TagSend(out, 1)
		w.Progress()
		if _, err := w.TagRecv(in, 1, exact).Wait(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
