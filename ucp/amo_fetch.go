package ucp

import (
	"context"

	"github.com/goucx/goucx/ucs"
)

// Fetch is an operation that returns a value. A transport with direct memory access
// returns the value at the call. Otherwise the value arrives later; the first Wait
// consumes it, and a second Wait returns ErrStale. A program that does not read the
// value must call Drop.
type Fetch[T Word] struct {
	v T
	r Request
}

// Wait progresses the worker until the value has arrived. If ctx ends first, Wait
// returns, and the operation continues.
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

// Done reports whether the operation has completed. It does not progress.
func (f Fetch[T]) Done() bool { return f.r.Done() }

// Drop discards the value.
func (f Fetch[T]) Drop() { RecvRequest{f.r}.Drop() }

// startFetch tries the operation in slot i. Its value is in the slot's tag and is
// consumed as the result of a receive.
func (w *Worker) startFetch(i uint32) (uint64, Request) {
	s := &w.slab.slots[i]
	s.flags |= flagHasResult
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

// newFetchSlot takes the slot of an operation that returned InProgress. The transport got
// the token of the next free slot, which is this one.
//
//go:noinline
func (k *RemoteKey) newFetchSlot(op opKind, l *keyLane) Request {
	i := k.newSlot(op, l, 0)
	s := &k.t.w.slab.slots[i]
	s.flags |= flagHasResult
	s.partsLeft = 1
	return Request{k.t, k.t.w.slab.id(i)}
}
