package verbstest

import (
	"encoding/binary"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var atomicCases = []testCase{
	{"fetch-add", 0, atomicFetchAdd},
	{"compare-swap", 0, atomicCompareSwap},
	{"host-order", 0, atomicHostOrder},
	{"from-both-sides", 0, atomicBoth},
	{"length", 0, atomicLength},
	{"misaligned", 0, atomicMisaligned},
	{"read-only-result", 0, atomicReadOnlyResult},
}

var native = binary.NativeEndian

func (d *duo) atomic(op verbs.Opcode, off int, compare, swap uint64) (old uint64) {
	d.Helper()
	w := at(request(1, op, d.am.sge(64, 8)), d.bm, off)
	w.Compare, w.Swap = compare, swap
	d.a.send(w)
	d.a.sent(1)
	return native.Uint64(d.am.buf[64:])
}

func (e *env) atomics() *duo {
	e.Helper()
	if e.sides[1].Attr().Atomic == verbs.AtomicNone {
		e.notApplicable("no atomics")
	}
	return e.rc(nil)
}

func atomicFetchAdd(e *env) {
	d := e.atomics()
	want := uint64(0)
	for _, add := range []uint64{1, 5, 1 << 63, 1 << 63, ^uint64(0), 0} {
		require.Equal(e, want, d.atomic(verbs.OpFetchAdd, 8, 0, add))
		want += add
		require.Equal(e, want, native.Uint64(d.bm.buf[8:]))
	}
	require.Equal(e, make([]byte, 8), d.bm.buf[:8])
	require.Equal(e, make([]byte, 8), d.bm.buf[16:24])
}

// atomicCompareSwap: it stores where it matches, and gives the old value always.
func atomicCompareSwap(e *env) {
	d := e.atomics()
	const a, b = 0x1122334455667788, 0x99aabbccddeeff00
	require.Zero(e, d.atomic(verbs.OpCompareSwap, 8, 0, a))
	require.EqualValues(e, a, d.atomic(verbs.OpCompareSwap, 8, b, 5), "does not match")
	require.EqualValues(e, a, native.Uint64(d.bm.buf[8:]))
	require.EqualValues(e, a, d.atomic(verbs.OpCompareSwap, 8, a, b))
	require.EqualValues(e, uint64(b), native.Uint64(d.bm.buf[8:]))
}

// atomicHostOrder: words stand in memory as the CPU has them.
func atomicHostOrder(e *env) {
	d := e.atomics()
	native.PutUint64(d.bm.buf, 0x0102030405060708)
	require.EqualValues(e, 0x0102030405060708, d.atomic(verbs.OpFetchAdd, 0, 0, 0x10))
	require.EqualValues(e, 0x0102030405060718, native.Uint64(d.bm.buf))
}

// atomicBoth: many additions from both ends are all there.
func atomicBoth(e *env) {
	d := e.atomics()
	word := e.sides[1].mem(8, everything)
	back := e.sides[1].qp(defaults(verbs.RC)) // the owner's own way to it
	back.ready(back)
	const count = 200
	for range count {
		d.a.send(addTo(word, d.am))
		back.send(addTo(word, d.bm))
		d.a.sent(1)
		back.sent(1)
	}
	require.EqualValues(e, 2*count, native.Uint64(word.buf))
}

func addTo(word, result *mem) verbs.SendWR {
	w := at(request(1, verbs.OpFetchAdd, result.sge(0, 8)), word, 0)
	w.Swap = 1
	return w
}

// atomicLength: a result of another length than 8 bytes is refused, or fails.
func atomicLength(e *env) {
	for _, n := range []int{0, 4, 16} {
		d := e.atomics()
		w := at(request(1, verbs.OpFetchAdd, d.am.sge(0, n)), d.bm, 0)
		w.Swap = 1
		if _, st := d.a.PostSend([]verbs.SendWR{w}); st == ucs.OK {
			d.a.sentAs(1, verbs.WCLocLenErr, verbs.WCLocQPOpErr, verbs.WCRemInvReqErr)
		} else {
			require.Equal(e, ucs.InvalidParam, st, "%d bytes", n)
		}
		require.Equal(e, make([]byte, 8), d.bm.buf[:8])
	}
}

// atomicMisaligned: a word at another address than a multiple of 8 is refused, and
// nothing changes.
func atomicMisaligned(e *env) {
	for _, off := range []int{1, 4, 7} {
		d := e.atomics()
		w := at(request(1, verbs.OpFetchAdd, d.am.sge(0, 8)), d.bm, off)
		w.Swap = 1
		if e.fixture.Traits.AtomicsCheckedAtPost {
			d.a.refuses(w, "offset %d", off)
			continue
		}
		d.a.send(w)
		d.a.sentAs(1, verbs.WCRemInvReqErr, verbs.WCRemAccessErr)
		require.Equal(e, make([]byte, 16), d.bm.buf[:16])
	}
}

// atomicReadOnlyResult: the result needs memory that may be written.
func atomicReadOnlyResult(e *env) {
	d := e.atomics()
	m := e.sides[0].mem(8, verbs.RemoteRead)
	d.a.send(at(request(1, verbs.OpFetchAdd, m.sge(0, 8)), d.bm, 0))
	d.a.sentAs(1, verbs.WCLocProtErr)
}
