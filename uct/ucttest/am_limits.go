package ucttest

import (
	"math"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// amTooLong exceeds each limit by one; nothing may arrive.
func amTooLong(e *env) {
	a, b := e.pair()
	l, lim := e.connect(a, b), a.attr.AM
	if a.attr.Ops.Has(uct.OpAMShort) && lim.Short < math.MaxInt {
		assert.Equal(e, ucs.TooLong, l.AMShort(1, 1, make([]byte, lim.Short+1)))
	}
	if a.attr.Ops.Has(uct.OpAMBcopy) && lim.Bcopy < math.MaxInt {
		for _, n := range []int{lim.Bcopy + 1, math.MaxInt} {
			_, st := l.ReserveAM(1, 1, n)
			assert.Equal(e, ucs.TooLong, st, "reserve %d", n)
		}
	}
	if a.attr.Ops.Has(uct.OpAMZcopy) && lim.MaxZcopy < math.MaxInt {
		long := make([]byte, lim.MaxZcopy+1)
		t := a.token()
		assert.Equal(e, ucs.TooLong, l.AMZcopy(1, 1, nil, a.pieces(t, long, 1), t))
		assert.Equal(e, ucs.TooLong, l.AMZcopy(1, 1, nil, a.pieces(t, long, lim.MaxVec), t), "sum of the pieces")
		either := []uct.Status{ucs.TooLong, ucs.InvalidParam}
		assert.Contains(e, either, l.AMZcopy(1, 1, make([]byte, lim.MaxHeader+1), a.pieces(t, long[:lim.MinZcopy], 1), t), "head")
		assert.Contains(e, either, l.AMZcopy(1, 1, nil, make([]uct.Vec, lim.MaxVec+1), t), "pieces")
		a.unpin(t)
	}
	e.settle(a, b)
	require.Empty(e, b.inbox, "a refused message arrived")
}

// amUnsupported: operations that Attr does not list return Unsupported.
func amUnsupported(e *env) {
	a, b := e.pair()
	if a.attr.Ops.Has(uct.OpsAM) {
		e.notApplicable("carries every form of AM")
	}
	l := e.connect(a, b)
	p := make([]byte, 8)
	for _, f := range amForms {
		if !a.attr.Ops.Has(f.op) {
			assert.Equal(e, ucs.Unsupported, f.send(l, 1, 1, p), f.name)
		}
	}
}

// amRetain retains messages beyond HandleAM while others arrive, then releases them.
func amRetain(e *env) {
	a, b, l := e.linked(uct.OpAMShort, "AM short")
	var data [][]byte
	var handles []uint64
	b.onRetain = func(mem []byte, ds []uct.Desc) (kept uint64) {
		for i, d := range ds {
			if d.Flags&uct.DescCanRetain != 0 {
				kept |= 1 << i
				data = append(data, mem[d.Off:][:d.Len])
				handles = append(handles, d.Handle)
			}
		}
		return kept
	}
	const rounds, batch = 100, 16
	for i := range uint64(rounds * batch) {
		p := pattern(min(a.attr.AM.Short, 100), i)
		l.post(func() uct.Status { return l.AMShort(1, i, p) })
		e.until("a message", func() bool { return len(b.inbox) == int(i+1) }, a, b)
		if len(handles) < batch && i < rounds*batch-1 {
			continue
		}
		for k := range data {
			require.True(e, holds(data[k], i+1-uint64(len(data))+uint64(k)), "retained memory changed")
		}
		b.iface.Release(handles)
		data, handles = nil, nil
	}
	if b.retained == 0 {
		e.notApplicable("received messages cannot be kept")
	}
}
