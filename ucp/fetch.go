package ucp

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// Fetch is an operation with a value as its result: over transports that reach
// the memory directly the value is here at return, else it comes. A result that
// is still to come is consumed by the first Wait, a second answers ErrStale; one
// that nobody will read must be dropped.
type Fetch[T Word] struct {
	v T
	r Request
}

// Wait progresses the worker until the value is there. The end of ctx ends the
// waiting, not the operation.
func (f Fetch[T]) Wait(ctx context.Context) (v T, err error) {
	if f.r.id == 0 {
		return f.v, nil
	}
	n, err := f.r.waitValue(ctx)
	return T(n), err
}

// waitValue waits for the value of a fetching operation and consumes it.
//
//go:noinline
func (r Request) waitValue(ctx context.Context) (uint64, error) {
	m, err := RecvRequest{r}.Wait(ctx)
	if err != nil {
		return 0, err
	}
	return uint64(m.Tag), nil
}

// Done reports whether the operation has ended. It does not progress.
func (f Fetch[T]) Done() bool { return f.r.Done() }

// Drop says that nobody will read the value.
func (f Fetch[T]) Drop() { RecvRequest{f.r}.Drop() }

// startFetch tries the operation in slot i, whose result lies in the slot's tag
// and is consumed as that of a receive.
func (w *Worker) startFetch(i uint32) (uint64, Request) {
	s := &w.slab.slots[i]
	s.flags |= flagKept
	id, op, ep := w.slab.id(i), s.op, s.ep
	st := w.try(i)
	if st == ucs.InProgress {
		return 0, Request{&w.t, id}
	}
	v, lane := w.slab.slots[i].tag, w.slab.slots[i].lane
	w.slab.release(i)
	if st != ucs.OK {
		w.noteFailure(lane, st)
		return 0, w.t.refuse(op, w.handle(ep), st)
	}
	return v, Request{}
}

// fetching takes the slot whose token an operation that answered InProgress was
// given: that of the next slot.
//
//go:noinline
func (k *RemoteKey) fetching(op opKind, l *keyLane) Request {
	i := k.take(op, l, 0)
	s := &k.t.w.slab.slots[i]
	s.flags |= flagKept
	s.left = 1
	return Request{k.t, k.t.w.slab.id(i)}
}
