package ucttest

import (
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/uct"
)

var amCases = []testCase{
	{"short", func(e *env) { amSizes(e, &amForms[0]) }},
	{"uint64", func(e *env) { amSizes(e, &amForms[1]) }},
	{"bcopy", func(e *env) { amSizes(e, &amForms[2]) }},
	{"zcopy", func(e *env) { amSizes(e, &amForms[3]) }},
	{"ids", amIDs},
	{"source", amSource},
	{"bcopy-fewer", amBcopyFewer},
	{"bcopy-abort", amBcopyAbort},
	{"bcopy-other-endpoint", amBcopyOther},
	{"zcopy-pieces", amZcopyPieces},
	{"buffer-reuse", amBufferReuse},
	{"too-long", amTooLong},
	{"unsupported", amUnsupported},
	{"keep", amRetain},
}

// sizesUpTo returns the lengths from low to high at which copy routines change their method, and
// both limits.
func sizesUpTo(low, high int) (sizes []int) {
	for _, n := range []int{
		0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 31, 32, 33, 39, 40, 41, 47, 48, 49, 56, 63, 64, 65, 127, 128,
		129, 255, 256, 257, 511, 512, 1000, 1023, 1024, 1025, 2047, 2048, 3000, 4095, 4096, 4097, 8191, 8192, 8193,
		65536, 65537, 1 << 20, 1<<20 + 3, high - 1,
	} {
		if low <= n && n < high {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return append(slices.Compact(sizes), high)
}

// amSizes sends every length of one form and compares what arrives.
func amSizes(e *env, f *form) {
	a, b, l := e.linked(f.op, "AM "+f.name)
	low, high := f.limit(a.attr)
	require.LessOrEqual(e, low, high)
	if f.op == uct.OpAMShort {
		require.GreaterOrEqual(e, high, 8, "AM short must carry eight bytes")
	}
	for i, n := range sizesUpTo(low, min(high, 4<<20)) {
		seed := uint64(i + 1)
		p := pattern(n, seed)
		st := l.post(func() uct.Status { return f.send(l, 7, ^seed, p) })
		require.Contains(e, []uct.Status{ok, inProgress}, st, "%d bytes", n)
		m := l.receive()
		require.EqualValues(e, 7, m.id)
		require.Equal(e, ^seed, m.header)
		require.NotZero(e, m.rxConn, "Desc.RxConn")
		require.Len(e, m.data, n)
		require.True(e, holds(m.data, seed), "%d bytes changed on their way", n)
	}
	e.settle(a, b)
	assert.Empty(e, b.inbox, "a message came twice")
}

// amIDs uses each ID.
func amIDs(e *env) {
	a, _, l := e.linked(uct.OpAMShort, "AM short")
	for _, f := range a.forms() {
		for id := range uct.AMID(uct.NumAMIDs) {
			p := pattern(max(8, a.attr.AM.MinZcopy), 1)
			if !f.fits(a.attr, len(p)) {
				continue
			}
			l.post(func() uct.Status { return f.send(l, id, 0, p) })
			require.Equal(e, id, l.receive().id, "form %s", f.name)
		}
	}
}

// amSource: the number is constant per endpoint, and differs between endpoints of different
// ifaces.
func amSource(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	senders := []*node{a, a}
	if a != b {
		senders[1] = e.node()
	}
	sources := make(map[uint32]int)
	for i, n := range senders {
		l := e.connect(n, b)
		for range 3 {
			l.post(func() uct.Status { return l.AMUint64(1, uint64(i), 0) })
		}
		e.until("three messages", func() bool { return len(b.inbox) == 3 }, n, b)
		for _, m := range b.inbox {
			require.EqualValues(e, i, m.header)
			require.Equal(e, b.inbox[0].rxConn, m.rxConn, "one endpoint, two sources")
		}
		sources[b.inbox[0].rxConn]++
		b.inbox = nil
	}
	if a != b {
		assert.Len(e, sources, 2, "two peers, one source")
	}
}

// amBcopyFewer commits fewer bytes than it reserved.
func amBcopyFewer(e *env) {
	a, _, l := e.linked(uct.OpAMBcopy, "AM bcopy")
	most := min(a.attr.AM.Bcopy, 1<<20)
	for i, c := range [][2]int{{most, most - 1}, {most, 8}, {most, 1}, {most, 0}, {100, 99}, {100, 50}, {16, 0}, {1, 0}, {0, 0}, {64, 64}} {
		seed := uint64(i + 1)
		var mem []byte
		st := l.post(func() (st uct.Status) {
			mem, st = l.ReserveAM(3, seed, c[0])
			return st
		})
		require.Equal(e, ok, st)
		require.Len(e, mem, c[0])
		clobber(mem)
		fill(mem[:c[1]], seed)
		l.CommitAM(c[1])
		m := l.receive()
		require.Equal(e, seed, m.header)
		require.Len(e, m.data, c[1])
		require.True(e, holds(m.data, seed))
	}
}

// amBcopyAbort aborts reservations, many more than the transport can have messages.
func amBcopyAbort(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMBcopy|uct.OpAMShort, "AM bcopy and short")
	l := e.connect(a, b).up()
	const rounds = 20_000
	for i := range uint64(rounds) {
		mem, st := l.ReserveAM(3, i, min(a.attr.AM.Bcopy, 1000))
		require.Equal(e, ok, st, "reservation %d: aborted ones take resources", i)
		clobber(mem)
		l.Abort()
	}
	require.Equal(e, ok, l.AMUint64(4, 5, 6))
	e.until("a message", func() bool { return len(b.inbox) > 0 }, a, b)
	e.settle(a, b)
	require.Len(e, b.inbox, 1, "an aborted reservation was sent")
	require.EqualValues(e, 4, b.inbox[0].id)
}

// amBcopyOther leaves a reservation open while the iface does other work.
func amBcopyOther(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMBcopy|uct.OpAMShort, "AM bcopy and short")
	l, other := e.connect(a, b), e.connect(a, b)
	l.post(func() uct.Status { return l.AMUint64(1, 1, 1) })
	mem, st := l.ReserveAM(2, 2, 64)
	require.Equal(e, ok, st)
	fill(mem, 2)
	for i := range 100 {
		other.post(func() uct.Status { return other.AMUint64(3, 3, 3) })
		e.until("messages of another endpoint", func() bool { return len(b.inbox) == i+2 }, a, b)
	}
	l.CommitAM(64)
	e.until("the committed message", func() bool { return len(b.inbox) == 102 }, a, b)
	last := b.inbox[101]
	require.EqualValues(e, 2, last.id)
	require.True(e, holds(last.data, 2))
}

// amZcopyPieces sends many combinations of header and pieces.
func amZcopyPieces(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMZcopy, "AM zcopy")
	l, lim := e.connect(a, b), a.attr.AM
	for i, head := range sizesUpTo(0, lim.MaxHeader) {
		for vecs := 0; vecs <= lim.MaxVec; vecs++ {
			n := max(vecs*(i%7), lim.MinZcopy)
			if vecs == 0 && lim.MinZcopy > 0 || n > lim.MaxZcopy {
				continue
			}
			if vecs == 0 {
				n = 0
			}
			whole := pattern(head+n, uint64(i+1))
			h, p, t := slices.Clone(whole[:head]), slices.Clone(whole[head:]), a.token()
			st := l.post(func() uct.Status {
				v := a.pieces(t, p, vecs)
				return a.sent(t, l.AMZcopy(9, 11, h, v, t), v)
			})
			clobber(h) // copied before the call returned
			require.Equal(e, ok, l.end(t, st))
			require.Equal(e, whole, l.receive().data, "head of %d, %d pieces", head, vecs)
		}
	}
}

// amBufferReuse overwrites buffers as soon as the caller owns them again.
func amBufferReuse(e *env) {
	a, _, l := e.linked(0, "")
	for _, f := range a.forms() {
		_, high := f.limit(a.attr)
		for i := range 20 {
			p := pattern(min(high, 8<<(i%10)), uint64(i))
			if !f.fits(a.attr, len(p)) {
				continue
			}
			st := l.post(func() uct.Status { return f.send(l, 1, uint64(i), p) })
			if st == ok {
				clobber(p)
			}
			require.True(e, holds(l.receive().data, uint64(i)), "%s uses a buffer that it returned to the caller", f.name)
		}
	}
}
