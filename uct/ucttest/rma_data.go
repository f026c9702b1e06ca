package ucttest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

var putCases = []testCase{
	{"sizes", putSizes},
	{"uint64", putUint64},
	{"large", putLarge},
	{"zero-length", putZero},
	{"buffer-reuse", putBufferReuse},
}

var getCases = []testCase{
	{"sizes", getSizes},
	{"uint64", getUint64},
	{"large", getLarge},
	{"zero-length", getZero},
}

// alignments of remote and local addresses for small copies.
var alignments = []int{0, 1, 2, 3, 4, 5, 7, 8}

// eachRegion runs f on a region of n bytes of each kind, filled with a pattern.
func (e *env) eachRegion(ops uct.Ops, what string, n int, f func(l *link, r *region)) {
	e.Helper()
	a, b := e.pair()
	if a.attr.Ops&ops == 0 {
		e.notApplicable("does not carry " + what)
	}
	l := e.connect(a, b)
	for _, k := range e.kinds(b) {
		r := e.region(b, a, k, n, uct.MemRemote)
		require.NotZero(e, r.attr.Ops&ops, "%s memory: KeyAttr has no %s", k, what)
		fill(r.bytes, 1)
		f(l, r)
	}
}

// putSizes writes every small length at every alignment; no other byte may change.
func putSizes(e *env) {
	e.eachRegion(uct.OpsPut, "put", 16<<10, func(l *link, r *region) {
		want, seed := r.snapshot(), uint64(2)
		r.each(putForms, sizesUpTo(0, 8200), func(f *rmaForm, n int) {
			for i, off := range alignments {
				local := make([]byte, n+8)[alignments[(i*3)%8]:][:n]
				seed++
				fill(local, seed)
				require.Equal(e, ok, f.transfer(l, local, r.base+64+uint64(off), r.key), "%s of %d", f.name, n)
				l.flush()
				copy(want[64+off:], local)
				require.True(e, string(want) == string(r.bytes), "%s of %d bytes at +%d", f.name, n, off)
			}
		})
	})
}

// getSizes reads every small length at every alignment.
func getSizes(e *env) {
	e.eachRegion(uct.OpsGet, "get", 16<<10, func(l *link, r *region) {
		r.each(getForms, sizesUpTo(0, 8200), func(f *rmaForm, n int) {
			for i, off := range alignments {
				shift := alignments[(i*3)%8]
				local := make([]byte, n+24)
				clobber(local)
				require.Equal(e, ok, f.transfer(l, local[shift:][:n], r.base+64+uint64(off), r.key), "%s of %d", f.name, n)
				want := make([]byte, len(local))
				clobber(want)
				copy(want[shift:], r.bytes[64+off:][:n])
				require.Equal(e, want, local, "%s of %d bytes at +%d", f.name, n, off)
			}
		})
	})
}

// putUint64 writes words at every alignment.
func putUint64(e *env) {
	e.eachRegion(uct.OpPutShort, "put short", 256, func(l *link, r *region) {
		want := r.snapshot()
		for off := range 33 {
			v := uint64(off+1) * 0x0123456789abcdef
			require.Equal(e, ok, l.post(func() uct.Status { return l.PutUint64(v, r.base+uint64(off), r.key) }))
			l.flush()
			le.PutUint64(want[off:], v)
			require.Equal(e, []byte(want), r.bytes, "at +%d", off)
		}
	})
}

// getUint64 reads words at every alignment.
func getUint64(e *env) {
	e.eachRegion(uct.OpGetShort, "get short", 256, func(l *link, r *region) {
		for off := range 33 {
			t := r.user.token()
			var v uint64
			st := l.post(func() (st uct.Status) {
				v, st = l.GetUint64(r.base+uint64(off), r.key, t)
				return r.user.sent(t, st)
			})
			ev := l.endValue(t, st)
			require.Equal(e, ok, ev.Status)
			if st == inProgress {
				v = ev.Value
			}
			require.Equal(e, le.Uint64(r.bytes[off:]), v, "at +%d", off)
		}
	})
}

// large lists lengths around the chunk sizes of large copies.
var large = []int{64 << 10, 512<<10 - 1, 512 << 10, 512<<10 + 1, 1 << 20, 1<<20 + 3, 3<<20 + 5}

func putLarge(e *env) {
	e.eachRegion(uct.OpsPut, "put", 4<<20, func(l *link, r *region) {
		want, i := r.snapshot(), 0
		r.each(putForms, large, func(f *rmaForm, n int) {
			i++
			p := pattern(n, uint64(i))
			require.Equal(e, ok, f.transfer(l, p, r.base+uint64(i), r.key), "%s of %d", f.name, n)
			l.flush()
			copy(want[i:], p)
			require.True(e, string(want) == string(r.bytes), "%s of %d bytes", f.name, n)
		})
	})
}

func getLarge(e *env) {
	e.eachRegion(uct.OpsGet, "get", 4<<20, func(l *link, r *region) {
		i := 0
		r.each(getForms, large, func(f *rmaForm, n int) {
			i++
			p := make([]byte, n)
			require.Equal(e, ok, f.transfer(l, p, r.base+uint64(i), r.key), "%s of %d", f.name, n)
			require.True(e, string(p) == string(r.bytes[i:][:n]), "%s of %d bytes", f.name, n)
		})
	})
}

// putZero and getZero transfer zero bytes at any offset of the region, including its end.
func putZero(e *env) {
	e.eachRegion(uct.OpsPut, "put", 64, func(l *link, r *region) { zeroLength(l, r, putForms) })
}

func getZero(e *env) {
	e.eachRegion(uct.OpsGet, "get", 64, func(l *link, r *region) { zeroLength(l, r, getForms) })
}

func zeroLength(l *link, r *region, forms []rmaForm) {
	want := r.snapshot()
	r.each(forms, []int{0}, func(f *rmaForm, _ int) {
		for _, off := range []uint64{0, 1, 63, 64} {
			for _, p := range [][]byte{nil, {}} {
				require.Equal(l.env, ok, f.transfer(l, p, r.base+off, r.key), "%s at +%d", f.name, off)
			}
		}
	})
	l.flush()
	require.Equal(l.env, []byte(want), r.bytes)
}

// putBufferReuse overwrites a buffer as soon as the caller owns it again.
func putBufferReuse(e *env) {
	e.eachRegion(uct.OpsPut, "put", 4096, func(l *link, r *region) {
		seed := uint64(0)
		lengths := []int{8, 16, 32, 64, 128, 256, 512, 1024, 2048}
		r.each(putForms, slices.Repeat(lengths, 6), func(f *rmaForm, n int) {
			seed++
			p := pattern(n, seed)
			require.Equal(e, ok, f.transfer(l, p, r.base, r.key))
			clobber(p)
			l.flush()
			require.True(e, holds(r.bytes[:n], seed), "%s uses a buffer that it returned to the caller", f.name)
		})
	})
}
