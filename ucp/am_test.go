package ucp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

func BenchmarkAMPair(b *testing.B) {
	for _, tr := range []string{"self", "shm"} {
		for _, header := range []int{0, 8} {
			b.Run(fmt.Sprintf("%s/header=%d", tr, header), func(b *testing.B) {
				_, peer, ep := newPair(b, tr, ucp.ThreadSingle)
				n := 0
				require.NoError(b, peer.HandleAM(1, func(m *ucp.AM) { n += m.Len }))
				head, out := make([]byte, header), make([]byte, 8)
				want := 0
				b.ReportAllocs()
				for b.Loop() {
					ep.AMSend(1, head, out)
					for want += 8; n < want; {
						peer.Progress()
					}
				}
			})
		}
	}
}

// No active message of a steady flow allocates, with a header or without, kept
// or not.
func TestGateAMAllocations(t *testing.T) {
	skipUnderRace(t)
	ctx := context.Background()
	for _, tc := range []struct {
		tr   string
		mode ucp.ThreadMode
	}{{"self", ucp.ThreadSingle}, {"shm", ucp.ThreadSingle}, {"self", ucp.ThreadMulti}, {"shm", ucp.ThreadMulti}} {
		tr := tc.tr
		a, b, ep := newPair(t, tr, tc.mode)
		got, keep := 0, false
		var kept ucp.RetainedAM
		require.NoError(t, b.HandleAM(300, func(m *ucp.AM) {
			got++
			if keep {
				kept = m.Retain()
			}
		}))
		for _, size := range []int{0, 8, 1024, 20_000} {
			for _, header := range []int{0, 8, 500} {
				for _, k := range []bool{false, true} {
					head, out := make([]byte, header), make([]byte, size)
					keep = k
					f := func() {
						want := got + 1
						r := ep.AMSend(300, head, out)
						for got < want {
							a.Progress()
							b.Progress()
						}
						require.NoError(t, r.Wait(ctx))
						kept.Release()
						kept = ucp.RetainedAM{}
					}
					for range 20 {
						f()
					}
					assert.Zero(t, testing.AllocsPerRun(100, f), "%s, %d bytes, header %d, kept %t", tr, size, header, k)
				}
			}
		}
	}
}

func TestAMFirst(t *testing.T) {
	for _, tr := range []string{"self", "shm"} {
		t.Run(tr, func(t *testing.T) {
			_, b, ep := newPair(t, tr, ucp.ThreadSingle)
			var kept []ucp.RetainedAM
			require.NoError(t, b.HandleAM(7, func(m *ucp.AM) { kept = append(kept, m.Retain()) }))
			require.NoError(t, ep.AMSend(7, []byte("head"), []byte("data")).Wait(t.Context()))
			for len(kept) == 0 {
				b.Progress()
			}
			assert.Equal(t, "head", string(kept[0].Header()))
			assert.Equal(t, "data", string(kept[0].Bytes()))
			kept[0].Release()
			assert.Nil(t, kept[0].Bytes())
		})
	}
}
