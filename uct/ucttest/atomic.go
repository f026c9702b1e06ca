package ucttest

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

var atomicCases = []testCase{
	{"post32", func(e *env) { atomicOracle(e, 4, false) }},
	{"post64", func(e *env) { atomicOracle(e, 8, false) }},
	{"fetch32", func(e *env) { atomicOracle(e, 4, true) }},
	{"fetch64", func(e *env) { atomicOracle(e, 8, true) }},
	{"unaligned", atomicUnaligned},
	{"unlisted", atomicUnlisted},
	{"concurrent-adds", atomicAdds},
	{"concurrent-swaps", atomicSwaps},
}

// oracle returns the value of a word after op.
func oracle(op uct.AtomicOp, old, v, cmp uint64) uint64 {
	switch op {
	case uct.AtomicAdd:
		return old + v
	case uct.AtomicAnd:
		return old & v
	case uct.AtomicOr:
		return old | v
	case uct.AtomicXor:
		return old ^ v
	case uct.AtomicSwap:
		return v
	case uct.AtomicCompareSwap:
		if old == cmp {
			return v
		}
	}
	return old
}

// set returns the operations of a width that iface and key allow.
func (r *region) set(width int, fetch bool) uct.AtomicSet {
	a := r.user.attr
	if width == 4 && fetch {
		return a.Fetch32 & r.attr.Atomic32
	}
	if width == 4 {
		return a.Post32 & r.attr.Atomic32
	}
	if fetch {
		return a.Fetch64 & r.attr.Atomic64
	}
	return a.Post64 & r.attr.Atomic64
}

// atomic runs one operation to completion.
func (l *link) atomic(r *region, op uct.AtomicOp, width int, fetch bool, v, cmp, off uint64) (uint64, uct.Status) {
	l.env.Helper()
	t := r.user.token()
	var old uint64
	st := l.post(func() (st uct.Status) {
		switch {
		case width == 4 && fetch:
			var old32 uint32
			old32, st = l.Fetch32(op, uint32(v), uint32(cmp), r.base+off, r.key, t)
			old = uint64(old32)
		case width == 4:
			st = l.Atomic32(op, uint32(v), r.base+off, r.key)
		case fetch:
			old, st = l.Fetch64(op, v, cmp, r.base+off, r.key, t)
		default:
			st = l.Atomic64(op, v, r.base+off, r.key)
		}
		return r.user.sent(t, st)
	})
	ev := l.endValue(t, st)
	if st == inProgress {
		old = ev.Value
	}
	return old, ev.Status
}

// needsAtomics ends the case if an iface has no atomics of the kind.
func (e *env) needsAtomics(set uct.AtomicSet) {
	e.Helper()
	if set == 0 {
		e.notApplicable("no such atomics")
	}
}

// atomicOracle compares random operations with the oracle; the words beside the target must not
// change.
func atomicOracle(e *env, width int, fetch bool) {
	random := rand.New(rand.NewPCG(uint64(width), 1))
	e.eachRegion(uct.OpAtomics, "atomics", 4096, func(l *link, r *region) {
		set := r.set(width, fetch)
		e.needsAtomics(set)
		words := []uint64{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 63, 1<<63 - 1, ^uint64(0)}
		pick := func() uint64 {
			if random.IntN(2) == 0 {
				return words[random.IntN(len(words))]
			}
			return random.Uint64()
		}
		want := r.snapshot()
		for range 3000 {
			op := uct.AtomicOp(random.IntN(int(uct.NumAtomicOps)))
			if !set.Has(op) {
				continue
			}
			off, v, cmp := uint64(random.IntN(8)*width+1024), pick(), pick()
			old := word(want[off:], width)
			if random.IntN(2) == 0 {
				cmp = old
			}
			if width == 4 {
				v, cmp = v&0xffffffff, cmp&0xffffffff
			}
			got, st := l.atomic(r, op, width, fetch, v, cmp, off)
			require.Equal(e, ok, st, "%v", op)
			if fetch {
				require.Equal(e, old, got, "%v fetched", op)
			}
			l.flush()
			setWord(want[off:], width, oracle(op, old, v, cmp))
			require.Equal(e, []byte(want), r.bytes, "%v %#x %#x of %#x", op, v, cmp, old)
		}
	})
}

func word(b []byte, width int) uint64 {
	if width == 4 {
		return uint64(le.Uint32(b))
	}
	return le.Uint64(b)
}

func setWord(b []byte, width int, v uint64) {
	if width == 4 {
		le.PutUint32(b, uint32(v))
		return
	}
	le.PutUint64(b, v)
}

// atomicUnaligned: returns InvalidParam, and the word does not change.
func atomicUnaligned(e *env) {
	e.eachRegion(uct.OpAtomics, "atomics", 256, func(l *link, r *region) {
		for _, width := range []int{4, 8} {
			for _, fetch := range []bool{false, true} {
				if !r.set(width, fetch).Has(uct.AtomicAdd) {
					continue
				}
				for off := 1; off < width; off++ {
					_, st := l.atomic(r, uct.AtomicAdd, width, fetch, 1, 0, uint64(64+off))
					assert.Equal(e, ucs.InvalidParam, st, "%d bytes at +%d", width, off)
				}
			}
		}
		l.flush()
		require.True(e, holds(r.bytes, 1))
	})
}

// atomicUnlisted: operations outside the sets are refused.
func atomicUnlisted(e *env) {
	e.eachRegion(uct.OpAtomics, "atomics", 256, func(l *link, r *region) {
		for op := range uct.NumAtomicOps + 3 {
			for _, width := range []int{4, 8} {
				for _, fetch := range []bool{false, true} {
					if r.set(width, fetch).Has(op) {
						continue
					}
					_, st := l.atomic(r, op, width, fetch, ^uint64(0), 0, 64)
					assert.Contains(e, []uct.Status{ucs.Unsupported, ucs.InvalidParam}, st, "%v, %d bytes, fetch %v", op, width, fetch)
				}
			}
		}
		l.flush()
		require.True(e, holds(r.bytes, 1))
	})
}

// contend runs work on several ifaces at once, one goroutine each, all on the same word. work must
// not use require.
func contend(e *env, need uct.AtomicOp, work func(i int, l *link, r *region) error) *region {
	e.Helper()
	const workers = 3
	b := e.node()
	links := e.initiators(b, workers)
	regions := make([]*region, workers)
	k := e.kinds(b)[0]
	mem := e.region(b, links[0].from, k, 256, uct.MemRemote)
	for i, l := range links {
		l.up()
		r := *mem
		r.user, r.key = l.from, e.unpack(l.from, mem.packed)
		regions[i] = &r
		if !r.set(8, true).Has(need) || !r.set(8, false).Has(uct.AtomicAdd) {
			e.notApplicable(fmt.Sprintf("no 64-bit %v", need))
		}
	}
	var wg sync.WaitGroup
	for i, l := range links {
		wg.Go(func() {
			if err := work(i, l, regions[i]); err != nil {
				e.Errorf("iface %d: %v", i, err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	for { // the operations complete without the owner's progress, but some would complete late
		select {
		case <-done:
			return mem
		default:
		}
		if progress(b) == 0 {
			cpu.Yield()
		}
	}
}

// contended returns the number of operations for a worker. It is smaller where each takes a
// network round trip.
func (n *node) contended() int {
	if n.attr.Estimate.LatencyNS > 1000 {
		return n.env.messages() / 200
	}
	return n.env.messages() / 20
}

// blocking runs one fetching operation to completion on a worker's goroutine.
func (l *link) blocking(r *region, op uct.AtomicOp, v, cmp, off uint64) (old uint64, err error) {
	t := r.user.token()
	var st uct.Status
	if !drive(func() bool {
		old, st = l.Fetch64(op, v, cmp, r.base+off, r.key, t)
		return r.user.sent(t, st) != noResource
	}, r.user) {
		return 0, ucs.ErrTimeout
	}
	if st == inProgress {
		f := r.user.inFlightOps[t]
		if !drive(func() bool { return f.ended }, r.user) {
			return 0, ucs.ErrTimeout
		}
		delete(r.user.inFlightOps, t)
		old, st = f.event.Value, f.event.Status
	}
	return old, st.Err()
}

// atomicAdds: no add is lost, and each value is fetched once.
func atomicAdds(e *env) {
	n := e.node().contended()
	seen := make([][]uint64, 3)
	r := contend(e, uct.AtomicAdd, func(i int, l *link, r *region) error {
		for range n {
			old, err := l.blocking(r, uct.AtomicAdd, 1, 0, 64)
			if err != nil {
				return err
			}
			seen[i] = append(seen[i], old)
		}
		return nil
	})
	require.EqualValues(e, 3*n, le.Uint64(r.bytes[64:]))
	all := make([]bool, 3*n)
	for _, values := range seen {
		for k, v := range values {
			require.Less(e, v, uint64(3*n))
			require.False(e, all[v], "%d was fetched twice", v)
			require.True(e, k == 0 || values[k-1] < v, "an iface saw the word go back")
			all[v] = true
		}
	}
}

// atomicSwaps: increments by compare-and-swap; none is lost.
func atomicSwaps(e *env) {
	n := e.node().contended()
	r := contend(e, uct.AtomicCompareSwap, func(_ int, l *link, r *region) error {
		guess := uint64(0)
		for done := 0; done < n; {
			old, err := l.blocking(r, uct.AtomicCompareSwap, guess+1, guess, 64)
			if err != nil {
				return err
			}
			if old == guess {
				done++
				old++
			}
			guess = old
		}
		return nil
	})
	require.EqualValues(e, 3*n, le.Uint64(r.bytes[64:]))
}
