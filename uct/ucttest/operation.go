package ucttest

import "github.com/goucx/goucx/uct"

// operation is one call of the data path on a link.
type operation struct {
	name string
	need uct.Ops
	run  func() uct.Status
}

// operations returns every data-path call, with harmless arguments: messages with ID 2, and
// one-sided operations on r if it is not nil.
func (l *link) operations(r *region) []operation {
	p, a := make([]byte, 64), l.from
	noted := func(op func(t uct.Token) uct.Status) func() uct.Status {
		return func() uct.Status {
			t := a.token()
			return a.sent(t, op(t), p)
		}
	}
	ops := []operation{
		{"AMShort", uct.OpAMShort, func() uct.Status { return l.AMShort(2, 0, p[:8]) }},
		{"AMUint64", uct.OpAMShort, func() uct.Status { return l.AMUint64(2, 0, 0) }},
		{"AMZcopy", uct.OpAMZcopy, noted(func(t uct.Token) uct.Status {
			return l.AMZcopy(2, 0, nil, a.pieces(t, make([]byte, max(8, a.attr.AM.MinZcopy)), 1), t)
		})},
		{"ReserveAM", uct.OpAMBcopy, func() uct.Status {
			_, st := l.ReserveAM(2, 0, 8)
			if st == ok {
				l.CommitAM(8)
			}
			return st
		}},
	}
	if r == nil {
		return ops
	}
	at, k := r.base, r.key
	ops = append(ops, []operation{
		{"PutShort", uct.OpPutShort, func() uct.Status { return l.PutShort(p[:8], at, k) }},
		{"PutUint64", uct.OpPutShort, func() uct.Status { return l.PutUint64(0, at, k) }},
		{"PutBcopy", uct.OpPutBcopy, noted(func(t uct.Token) uct.Status { return l.PutBcopy(p, at, k, t) })},
		{"PutZcopy", uct.OpPutZcopy, noted(func(t uct.Token) uct.Status { return l.PutZcopy(a.pieces(t, make([]byte, 64), 1), at, k, t) })},
		{"GetShort", uct.OpGetShort, func() uct.Status { return l.GetShort(p[:8], at, k) }},
		{"GetUint64", uct.OpGetShort, noted(func(t uct.Token) uct.Status {
			_, st := l.GetUint64(at, k, t)
			return st
		})},
		{"GetBcopy", uct.OpGetBcopy, noted(func(t uct.Token) uct.Status { return l.GetBcopy(make([]byte, 64), at, k, t) })},
		{"GetZcopy", uct.OpGetZcopy, noted(func(t uct.Token) uct.Status { return l.GetZcopy(a.pieces(t, make([]byte, 64), 1), at, k, t) })},
		{"Atomic64", uct.OpAtomics, func() uct.Status { return l.Atomic64(uct.AtomicAdd, 0, at, k) }},
		{"Fetch64", uct.OpAtomics, noted(func(t uct.Token) uct.Status {
			_, st := l.Fetch64(uct.AtomicAdd, 0, 0, at, k, t)
			return st
		})},
	}...)
	if a.attr.Ops.Has(uct.OpAtomics) && !a.attr.Post32.Has(uct.AtomicAdd) {
		return ops // atomic/unlisted covers those of 32 bits
	}
	return append(ops, []operation{
		{"Atomic32", uct.OpAtomics, func() uct.Status { return l.Atomic32(uct.AtomicAdd, 0, at, k) }},
		{"Fetch32", uct.OpAtomics, noted(func(t uct.Token) uct.Status {
			_, st := l.Fetch32(uct.AtomicAdd, 0, 0, at, k, t)
			return st
		})},
	}...)
}
