package ucp_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// postList posts the receives rs on w, and sends to all of them by ep.
func postList(w *ucp.Worker, ep ucp.Endpoint, rs []ucp.AnyRequest, in []byte) {
	for i := range rs {
		rs[i] = w.TagRecv(in, ucp.Tag(i), exact).Any()
	}
	for i := range rs {
		ep.TagSendUint64(1, ucp.Tag(i))
	}
}

// Waits for lists allocate nothing, in any mode, whether they find an outcome at once,
// after progress, or after a sleep.
func TestGateListAllocations(t *testing.T) {
	skipUnderRace(t)
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		w, _, ep := newPair(t, "self", mode)
		in := make([]byte, 8)
		rs, out := make([]ucp.AnyRequest, 16), make([]ucp.Result, 16)
		ctx := t.Context()
		for name, f := range map[string]func(){
			"any": func() {
				postList(w, ep, rs, in)
				for range rs {
					r, err := ucp.WaitAny(ctx, rs)
					require.NoError(t, err)
					require.Equal(t, 8, r.Len)
				}
			},
			"some": func() {
				postList(w, ep, rs, in)
				for n := 0; n < len(rs); {
					k, err := ucp.WaitSome(ctx, rs, out)
					require.NoError(t, err)
					n += k
				}
			},
			"all": func() {
				postList(w, ep, rs, in)
				require.NoError(t, ucp.WaitAll(ctx, rs, out))
			},
			"all, of sends": func() {
				require.NoError(t, ucp.WaitAll(ctx, []ucp.Request{ep.TagSendUint64(1, 99), ep.TagSendUint64(1, 99)}, nil))
				for range 2 {
					_, err := w.TagRecv(in, 99, exact).Wait(ctx)
					require.NoError(t, err)
				}
			},
			"on the stack": func() {
				list := [...]ucp.AnyRequest{w.TagRecv(in, 1, exact).Any(), ep.TagSendUint64(1, 1).Any()}
				for range list {
					_, err := ucp.WaitAny(ctx, list[:])
					require.NoError(t, err)
				}
			},
		} {
			for range 20 {
				f()
			}
			assert.Zero(t, testing.AllocsPerRun(100, f), "%v, %s", mode, name)
		}
	}
}

// Waits for lists that sleep, or park beside a goroutine that progresses, allocate nothing.
func TestGateListSleep(t *testing.T) {
	skipUnderRace(t)
	for _, tc := range []struct {
		name   string
		mode   ucp.ThreadMode
		parked bool
	}{{"single", ucp.ThreadSingle, false}, {"multi", ucp.ThreadMulti, false}, {"parked", ucp.ThreadMulti, true}} {
		t.Run(tc.name, func(t *testing.T) {
			c, err := ucp.Open(ucp.Config{Providers: provider("shm")})
			require.NoError(t, err)
			defer func() { require.NoError(t, c.Close()) }()
			w, err := c.NewWorker(ucp.WorkerConfig{Mode: tc.mode, Spin: time.Nanosecond})
			require.NoError(t, err)
			peer, err := c.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle, Spin: time.Nanosecond})
			require.NoError(t, err)
			ep, err := w.NewEndpoint(peer.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			back, err := peer.NewEndpoint(w.Address(), ucp.EndpointConfig{})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			var others sync.WaitGroup
			defer others.Wait()
			defer cancel()
			others.Go(func() {
				in := make([]byte, 8)
				for {
					m, err := peer.TagRecv(in, 0, 0).Wait(ctx)
					if err != nil {
						return
					}
					if m.Tag == 0 {
						time.Sleep(time.Millisecond) // on a busy machine the others come before the wait sleeps
					}
					back.TagSend(in, m.Tag)
				}
			})
			if tc.parked {
				others.Go(func() { _ = w.Run(ctx) })
			}
			in := make([]byte, 8)
			rs := make([]ucp.AnyRequest, 16)
			for i := range rs {
				rs[i] = w.TagRecv(in, ucp.Tag(i), exact).Any()
			}
			next := 0
			f := func() {
				ep.TagSendUint64(1, ucp.Tag(next))
				r, err := ucp.WaitAny(ctx, rs)
				require.NoError(t, err)
				require.Equal(t, next, r.Index)
				rs[next] = w.TagRecv(in, ucp.Tag(next), exact).Any()
				next = (next + 1) % len(rs)
			}
			for range 50 {
				f()
			}
			assert.Zero(t, testing.AllocsPerRun(200, f))
			slept := 0
			for _, c := range w.Stats().Snapshot() {
				if c.Name == "ucp.slept" {
					slept = int(c.Value)
				}
			}
			assert.Positive(t, slept)
		})
	}
}

// BenchmarkWaitAny is the time of one message to a list of receives: post it, send to it and
// wait for the list, of which that receive alone completes. One call looks at the whole list.
func BenchmarkWaitAny(b *testing.B) {
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		for _, n := range []int{1, 16, 1000} {
			b.Run(fmt.Sprintf("%s/%d", mode, n), func(b *testing.B) {
				w, _, ep := newPair(b, "self", mode)
				in, ctx := make([]byte, 8), context.Background()
				rs := make([]ucp.AnyRequest, n)
				for i := range rs {
					rs[i] = w.TagRecv(in, ucp.Tag(i), exact).Any()
				}
				b.ReportAllocs()
				next := 0
				for b.Loop() {
					ep.TagSendUint64(1, ucp.Tag(next))
					r, err := ucp.WaitAny(ctx, rs)
					if err != nil || r.Index != next {
						b.Fatal(r, err)
					}
					rs[next] = w.TagRecv(in, ucp.Tag(next), exact).Any()
					next = (next + 7) % n
				}
			})
		}
	}
}
