package ucttest

import "github.com/goucx/goucx/uct"

// operation is one call of the data path on a link.
type operation struct {
	l    *link
	name string
	need uct.Ops // also the rights that the key must have, if the operation is one-sided
	word bool    // an access to one word
	call func(t uct.Token) uct.Status
}

// run posts the operation once.
func (o *operation) run() uct.Status {
	t := o.l.from.token()
	return o.l.from.sent(t, o.call(t), o.call) // call references the buffers
}

// operations returns every supported data-path call, with harmless arguments: messages with ID 2,
// and one-sided operations on r if it is not nil.
func (l *link) operations(r *region) (ops []operation) {
	all := l.allOperations(nil, 0, 0)
	if r != nil {
		all = l.allOperations(r, r.base, 0)
	}
	for _, op := range all {
		if l.from.attr.Ops.Has(op.need) {
			ops = append(ops, op)
		}
	}
	return ops
}

// words returns the word operations that key and iface allow, at addr. They would change the word.
// At an unaligned address there are no atomics, since they would be refused for that reason.
func (l *link) words(r *region, addr uint64) (ops []operation) {
	for _, op := range l.allOperations(r, addr, 1) {
		supported := l.from.attr.Ops.Has(op.need) && r.attr.Ops.Has(op.need)
		if op.word && supported && (addr%8 == 0 || op.need != uct.OpAtomics) {
			ops = append(ops, op)
		}
	}
	return ops
}

// allOperations returns every data-path call, supported or not. One-sided ones access addr with
// the operand v.
func (l *link) allOperations(r *region, addr, v uint64) []operation {
	a, p := l.from, make([]byte, 64)
	var ops []operation
	add := func(name string, need uct.Ops, word bool, call func(t uct.Token) uct.Status) {
		ops = append(ops, operation{l, name, need, word, call})
	}
	long := make([]byte, max(8, a.attr.AM.MinZcopy))
	add("AMShort", uct.OpAMShort, false, func(uct.Token) uct.Status { return l.AMShort(2, 0, p[:8]) })
	add("AMUint64", uct.OpAMShort, false, func(uct.Token) uct.Status { return l.AMUint64(2, 0, 0) })
	add("AMZcopy", uct.OpAMZcopy, false, func(t uct.Token) uct.Status { return l.AMZcopy(2, 0, nil, a.pieces(t, long, 1), t) })
	add("ReserveAM", uct.OpAMBcopy, false, func(uct.Token) uct.Status {
		_, st := l.ReserveAM(2, 0, 8)
		if st == ok {
			l.CommitAM(8)
		}
		return st
	})
	if r == nil {
		return ops
	}

	k, short, bcopy, zcopy := r.key, make([]byte, 8), make([]byte, 64), make([]byte, 64) // results of gets
	add("PutShort", uct.OpPutShort, false, func(uct.Token) uct.Status { return l.PutShort(p[:8], addr, k) })
	add("PutUint64", uct.OpPutShort, true, func(uct.Token) uct.Status { return l.PutUint64(-v, addr, k) })
	add("PutBcopy", uct.OpPutBcopy, false, func(t uct.Token) uct.Status { return l.PutBcopy(p, addr, k, t) })
	add("PutZcopy", uct.OpPutZcopy, false, func(t uct.Token) uct.Status { return l.PutZcopy(a.pieces(t, p, 1), addr, k, t) })
	add("GetShort", uct.OpGetShort, false, func(uct.Token) uct.Status { return l.GetShort(short, addr, k) })
	add("GetUint64", uct.OpGetShort, true, func(t uct.Token) uct.Status { return second(l.GetUint64(addr, k, t)) })
	add("GetBcopy", uct.OpGetBcopy, false, func(t uct.Token) uct.Status { return l.GetBcopy(bcopy, addr, k, t) })
	add("GetZcopy", uct.OpGetZcopy, false, func(t uct.Token) uct.Status { return l.GetZcopy(a.pieces(t, zcopy, 1), addr, k, t) })
	add("Atomic64", uct.OpAtomics, true, func(uct.Token) uct.Status { return l.Atomic64(uct.AtomicAdd, v, addr, k) })
	add("Fetch64", uct.OpAtomics, true, func(t uct.Token) uct.Status { return second(l.Fetch64(uct.AtomicAdd, v, 0, addr, k, t)) })
	if a.attr.Ops.Has(uct.OpAtomics) && !a.attr.Post32.Has(uct.AtomicAdd) {
		return ops // atomic/unlisted covers those of 32 bits
	}
	add("Atomic32", uct.OpAtomics, true, func(uct.Token) uct.Status { return l.Atomic32(uct.AtomicAdd, uint32(v), addr, k) })
	add("Fetch32", uct.OpAtomics, true, func(t uct.Token) uct.Status {
		return second(l.Fetch32(uct.AtomicAdd, uint32(v), 0, addr, k, t))
	})
	return ops
}

// second returns the status of an operation with a value.
func second[T any](_ T, st uct.Status) uct.Status { return st }
