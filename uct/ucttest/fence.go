package ucttest

import (
	"math/rand/v2"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

// fenceRounds makes each connection carry more operations than the longest queue of a transport
// has slots.
const fenceRounds = 1200

// reading is a get or a fetching atomic in flight.
type reading struct {
	token uct.Token
	st    uct.Status
	buf   []byte // nil: the value counts
	value uint64 // valid if st is ok
	round uint64
}

// flushFenceAfterGet: a get before a fence does not see a put after the fence. Round n reads the
// region, fences, and puts pattern n. So a read returns pattern n-1 or, as nothing orders a put
// before a get, pattern n-2. Further puts beside it make each slot of a queue carry all kinds of
// operations.
func flushFenceAfterGet(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpFence, "fence")
	if a.attr.Ops&uct.OpsPut == 0 || a.attr.Ops&(uct.OpsGet|uct.OpAtomics) == 0 {
		e.notApplicable("does not carry put and get")
	}
	l := e.connect(a, b)
	r := e.region(b, a, e.kinds(b)[0], 4096, uct.MemRemote)
	r.each(putForms, []int{8, 512}, func(put *rmaForm, n int) {
		r.each(getForms, []int{n}, func(get *rmaForm, n int) { l.fenceRounds(r, n, put, get) })
		if a.attr.Ops.Has(uct.OpAtomics) && n == 8 {
			l.fenceRounds(r, n, put, nil)
		}
	})
}

// fenceRounds runs n rounds with one form of put and get; get nil: a fetching atomic.
func (l *link) fenceRounds(r *region, n int, put, get *rmaForm) {
	e, a := l.env, l.from
	e.Helper()
	random := rand.New(rand.NewPCG(uint64(n), 1))
	fill(r.bytes[:n], 0)
	var under []reading
	check := func(most int) {
		for len(under) > most {
			g := under[0]
			under = under[1:]
			ev := l.endValue(g.token, g.st)
			require.Equal(e, ok, ev.Status)
			if g.buf == nil {
				g.buf = make([]byte, 8)
				if g.st == inProgress {
					g.value = ev.Value
				}
				le.PutUint64(g.buf, g.value)
			}
			was, before := pattern(n, g.round-1), pattern(n, max(g.round, 2)-2)
			for i, c := range g.buf {
				if c != was[i] && c != before[i] {
					require.Failf(e, "a get before a fence", "%s of %d bytes in round %d: byte %d is %#x, not %#x or %#x; what is put after the fence has %#x there",
						put.name, n, g.round, i, c, was[i], before[i], pattern(n, g.round)[i])
				}
			}
		}
	}
	for round := uint64(1); round <= fenceRounds; round++ {
		g := reading{token: a.token(), round: round}
		if get != nil {
			g.buf = make([]byte, n)
		}
		g.st = l.post(func() (st uct.Status) {
			if get != nil {
				return a.sent(g.token, get.run(l, g.buf, r.base, r.key, g.token), g.buf)
			}
			g.value, st = l.Fetch64(uct.AtomicAdd, 0, 0, r.base, r.key, g.token)
			return a.sent(g.token, st)
		})
		under = append(under, g)
		require.Equal(e, ok, l.post(l.Fence))
		l.putAt(put, pattern(n, round), r.base, r.key)
		for range random.IntN(3) {
			l.putAt(put, pattern(n, 0), r.base+2048, r.key)
		}
		check(32)
	}
	check(0)
	l.flush()
	require.True(e, holds(r.bytes[:n], fenceRounds), "%s: the last put is the last", put.name)
}

// putAt posts a put without waiting for its completion.
func (l *link) putAt(f *rmaForm, p []byte, addr uint64, k uct.RKey) {
	l.env.Helper()
	t := l.from.token()
	st := l.post(func() uct.Status { return l.from.sent(t, f.run(l, p, addr, k, t), p) })
	require.Contains(l.env, []uct.Status{ok, inProgress}, st, f.name)
}
