package soft

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// recvs are receives with the IDs from first on, of one piece whose key is the
// ID.
func recvs(first, n int) []verbs.RecvWR {
	wrs := make([]verbs.RecvWR, n)
	for i := range wrs {
		wrs[i] = verbs.RecvWR{ID: uint64(first + i), NumSG: 1}
		wrs[i].SG[0] = verbs.SGE{Addr: 8, Len: 16, LKey: uint32(first + i)}
	}
	return wrs
}

func newRing(most int, single, shared bool) *recvRing {
	r := new(recvRing)
	r.init(most, single)
	r.shared = shared
	return r
}

// TestRecvRing: order through growth and wrap-around, and the limit.
func TestRecvRing(t *testing.T) {
	for _, tc := range []struct {
		name           string
		single, shared bool
	}{{"plain", false, false}, {"thread domain", true, false}, {"shared", false, true}} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRing(50, tc.single, tc.shared)
			var w recvWQE
			assert.False(t, r.pop(&w))
			assert.Nil(t, r.ring.Load(), "an idle queue costs no ring")
			next := 0
			for _, n := range []int{1, 4, 2, 9, 50, 3, 33} {
				k, st := r.post(recvs(next, n))
				require.Equal(t, n, k)
				require.Equal(t, ucs.OK, st)
				assert.Equal(t, n, r.len())
				for i := range n {
					require.True(t, r.pop(&w))
					require.Equal(t, uint64(next+i), w.id)
					require.Equal(t, verbs.SGE{Addr: 8, Len: 16, LKey: uint32(next + i)}, w.sg[0])
				}
				require.False(t, r.pop(&w))
				next += n
			}
			k, st := r.post(recvs(0, 60))
			assert.Equal(t, 50, k, "those before the bad one stay")
			assert.Equal(t, ucs.NoResource, st)
			r.reset()
			assert.Zero(t, r.len())
			assert.False(t, r.pop(&w))
		})
	}
}

func TestRecvRingRefuses(t *testing.T) {
	r := newRing(10, false, false)
	wrs := recvs(0, 3)
	wrs[1].NumSG = verbs.MaxSGE + 1
	n, st := r.post(wrs)
	assert.Equal(t, 1, n)
	assert.Equal(t, ucs.InvalidParam, st)
	assert.Equal(t, 1, r.len())
	n, st = newRing(0, false, false).post(recvs(0, 1))
	assert.Zero(t, n)
	assert.Equal(t, ucs.NoResource, st)
	n, st = r.post(nil)
	assert.Zero(t, n)
	assert.Equal(t, ucs.OK, st)
}

func TestRecvPieces(t *testing.T) {
	r := newRing(10, false, false)
	for n := range verbs.MaxSGE + 1 {
		wr := verbs.RecvWR{ID: uint64(n), NumSG: uint8(n)}
		for i := range wr.SG {
			wr.SG[i] = verbs.SGE{Addr: uint64(i), Len: uint32(n), LKey: 5}
		}
		_, st := r.post([]verbs.RecvWR{wr})
		require.Equal(t, ucs.OK, st)
		var w recvWQE
		require.True(t, r.pop(&w))
		assert.Equal(t, uint8(n), w.nsg)
		assert.Equal(t, wr.SG[:n], w.sg[:w.nsg])
	}
}

// TestRecvRingRace: what many post, takers get once and, from each poster, in
// order, while the ring grows.
func TestRecvRingRace(t *testing.T) {
	const each = 3000
	for _, tc := range []struct {
		name            string
		posters, takers int
		single          bool
	}{
		{"one each", 1, 1, true},
		{"many post", 3, 1, false},
		{"many take", 1, 3, true},
		{"many", 3, 3, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRing(tc.posters*each, tc.single, tc.takers > 1)
			total := int64(tc.posters * each)
			var got atomic.Int64
			seen := make([]atomic.Int32, total)
			var all sync.WaitGroup
			for p := range tc.posters {
				all.Go(func() {
					for i := 0; i < each; i += 3 {
						n, st := r.post(recvs(p*each+i, 3))
						if n != 3 || st != ucs.OK {
							t.Errorf("%d posted: %v", n, st)
						}
					}
				})
			}
			for range tc.takers {
				all.Go(func() {
					var w recvWQE
					last := make([]uint64, tc.posters)
					for got.Load() < total {
						if !r.pop(&w) {
							spin(1000)
							continue
						}
						got.Add(1)
						seen[w.id].Add(1)
						p := w.id / each
						if w.id+1 <= last[p] || w.sg[0].LKey != uint32(w.id) {
							t.Errorf("%d after %d, key %d", w.id, last[p], w.sg[0].LKey)
						}
						last[p] = w.id + 1
					}
				})
			}
			all.Wait()
			for i := range seen {
				require.Equal(t, int32(1), seen[i].Load())
			}
			assert.Zero(t, r.len())
		})
	}
}

func TestRecvRingAllocatesNothing(t *testing.T) {
	r := newRing(64, false, true)
	wrs := recvs(0, 8)
	var w recvWQE
	for range 8 {
		r.post(wrs)
	}
	r.reset()
	gate(t, func() {
		r.post(wrs)
		for r.pop(&w) {
		}
	})
}

func BenchmarkRecvRing(b *testing.B) {
	for _, tc := range []struct {
		name           string
		single, shared bool
	}{{"plain", false, false}, {"thread domain", true, false}, {"shared", false, true}} {
		b.Run(tc.name, func(b *testing.B) {
			r := newRing(64, tc.single, tc.shared)
			wrs := recvs(0, 1)
			var w recvWQE
			b.ReportAllocs()
			for b.Loop() {
				r.post(wrs)
				r.pop(&w)
			}
		})
	}
}
