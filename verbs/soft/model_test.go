package soft

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// naiveCQ is what a completion queue does, without a ring.
type naiveCQ struct {
	wcs   []verbs.WC
	depth int
	dead  bool
	armed uint32
	fired int
}

func (n *naiveCQ) push(w verbs.WC, solicited, ignore bool) {
	if n.dead {
		return
	}
	if len(n.wcs) == n.depth {
		n.dead = !ignore
		return
	}
	n.wcs = append(n.wcs, w)
	if n.armed == armedAny || n.armed == armedSolicited && (solicited || w.Status != 0) {
		n.armed = armedNot
		n.fired++
	}
}

// TestCQModel holds random operations against the naive queue.
func TestCQModel(t *testing.T) {
	d := openTest(t, Config{})
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		ch := testChannel(t, d)
		ignore := rnd.IntN(2) == 0
		n := &naiveCQ{depth: 1 + rnd.IntN(40)}
		c := testCQ(t, d, verbs.CQConfig{Depth: n.depth, Channel: ch, IgnoreOverrun: ignore, SingleThreaded: rnd.IntN(2) == 0})
		var id uint64
		for range 400 {
			switch rnd.IntN(12) {
			case 0, 1, 2, 3, 4:
				w := verbs.WC{ID: id, QPN: verbs.QPN(rnd.IntN(3)), Status: verbs.WCStatus(rnd.IntN(8) / 7)}
				id++
				se := rnd.IntN(4) == 0
				c.push(&w, se)
				n.push(w, se, ignore)
			case 5, 6, 7:
				wcs := make([]verbs.WC, rnd.IntN(6))
				got := c.Poll(wcs)
				if n.dead {
					require.Equal(t, -1, got, "seed %d", seed)
					continue
				}
				k := min(len(wcs), len(n.wcs))
				require.Equal(t, k, got, "seed %d", seed)
				require.True(t, slices.Equal(n.wcs[:k], wcs[:got]), "seed %d", seed)
				n.wcs = n.wcs[k:]
			case 8:
				q := verbs.QPN(rnd.IntN(3))
				c.purge(q)
				n.wcs = slices.DeleteFunc(slices.Clone(n.wcs), func(w verbs.WC) bool { return w.QPN == q })
			case 9:
				depth := 1 + rnd.IntN(60)
				if err := c.Resize(depth); depth < len(n.wcs) {
					require.ErrorIs(t, err, ucs.ErrInvalid, "seed %d", seed)
				} else {
					require.NoError(t, err, "seed %d", seed)
					n.depth = depth
				}
			case 10:
				so := rnd.IntN(2) == 0
				c.Arm(so)
				n.armed = max(n.armed, map[bool]uint32{true: armedSolicited, false: armedAny}[so])
			case 11:
				require.Len(t, events(ch), n.fired, "seed %d", seed)
				n.fired = 0
			}
		}
		for e, ok := d.TryAsync(); ok; e, ok = d.TryAsync() {
			d.Ack(e)
		}
	}
}

// TestRecvRingModel holds random operations against a slice.
func TestRecvRingModel(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 6))
		r := newRing(1+rnd.IntN(60), rnd.IntN(2) == 0, rnd.IntN(2) == 0)
		var queued []verbs.RecvWR
		var w recvWQE
		next := 0
		for range 500 {
			switch rnd.IntN(8) {
			case 0, 1, 2:
				wrs := recvs(next, rnd.IntN(9))
				next += len(wrs)
				n, st := r.post(wrs)
				want := min(len(wrs), int(r.maxLen)-len(queued))
				require.Equal(t, want, n, "seed %d", seed)
				require.Equal(t, want < len(wrs), st == ucs.NoResource, "seed %d", seed)
				queued = append(queued, wrs[:n]...)
			case 3, 4, 5, 6:
				ok := r.pop(&w)
				require.Equal(t, len(queued) > 0, ok, "seed %d", seed)
				if ok {
					require.Equal(t, queued[0].ID, w.id, "seed %d", seed)
					require.Equal(t, queued[0].SG[0], w.sg[0], "seed %d", seed)
					queued = queued[1:]
				}
			case 7:
				if rnd.IntN(10) == 0 {
					r.reset()
					queued = nil
				}
				require.Equal(t, len(queued), r.len(), "seed %d", seed)
			}
		}
	}
}

func FuzzSenderOf(f *testing.F) {
	f.Add([]byte{}, uint32(verbs.WCGRH))
	f.Add(make([]byte, 40), uint32(verbs.WCGRH))
	d := openTest(f, Config{})
	f.Fuzz(func(t *testing.T, grh []byte, flags uint32) {
		a, err := d.senderOf(1, &verbs.WC{Flags: verbs.WCFlags(flags)}, grh)
		if err == nil && a.DGID == (verbs.GID{}) {
			t.Fatal("a sender without address")
		}
	})
}
