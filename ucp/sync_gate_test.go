package ucp_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// Sync sends, announced messages, probe and take allocate nothing in a steady
// flow.
func TestGateAnsweredAllocations(t *testing.T) {
	skipUnderRace(t)
	ctx := context.Background()
	for _, tr := range []string{"self", "shm"} {
		a, b, ep := newPair(t, tr, ucp.ThreadSingle)
		out, in := make([]byte, 100_000), make([]byte, 100_000)
		drive := func(done func() bool) {
			for !done() {
				a.Progress()
				b.Progress()
			}
		}
		finish := func(s ucp.Request, r ucp.RecvRequest) {
			drive(r.Done)
			_, err := r.Wait(ctx)
			require.NoError(t, err)
			drive(s.Done)
			require.NoError(t, s.Wait(ctx))
		}
		unexpected := func(s ucp.Request) ucp.RecvRequest {
			for range 50 {
				a.Progress()
				b.Progress()
			}
			return b.TagRecv(in, 1, exact)
		}
		for name, f := range map[string]func(){
			"sync": func() {
				r := b.TagRecv(in, 1, exact)
				finish(ep.TagSendSync(out[:8], 1), r)
			},
			"sync, unexpected": func() {
				s := ep.TagSendSync(out[:8], 1)
				finish(s, unexpected(s))
			},
			"long sync": func() {
				r := b.TagRecv(in, 1, exact)
				finish(ep.TagSendSync(out, 1), r)
			},
			"rendezvous": func() {
				r := b.TagRecv(in, 1, exact)
				finish(ep.TagSend(out, 1), r)
			},
			"rendezvous, unexpected": func() {
				s := ep.TagSendWith(out[:8], 1, ucp.Opts{Flags: ucp.ForceRendezvous})
				finish(s, unexpected(s))
			},
			"probe and take": func() {
				ep.TagSendUint64(1, 2)
				drive(func() bool { _, ok := b.TagProbe(2, exact); return ok })
				k, _ := b.TagMprobe(2, exact)
				_, err := k.Recv(in).Wait(ctx)
				require.NoError(t, err)
			},
		} {
			for range 100 {
				f()
			}
			// A ring that grows meanwhile allocates; the flow in it does not.
			allocs := testing.AllocsPerRun(100, f)
			for k := 0; k < 5 && allocs > 0; k++ {
				allocs = testing.AllocsPerRun(100, f)
			}
			assert.Zero(t, allocs, "%s, %s", tr, name)
		}
	}
}

func BenchmarkTagSync(b *testing.B) {
	for _, tr := range []string{"self", "shm"} {
		b.Run(tr, func(b *testing.B) {
			a, peer, ep := newPair(b, tr, ucp.ThreadSingle)
			out, in := make([]byte, 8), make([]byte, 8)
			b.ReportAllocs()
			for b.Loop() {
				r := peer.TagRecv(in, 1, exact)
				s := ep.TagSendSync(out, 1)
				if _, err := r.Wait(context.Background()); err != nil {
					b.Fatal(err)
				}
				for !s.Done() {
					a.Progress()
				}
			}
		})
	}
}
