package ucp

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/goucx/goucx/ucp/internal/request"
)

// AnyRequest is a request of any kind, as [WaitAny], [WaitSome] and [WaitAll] take it.
// Request.Any, RecvRequest.Any and Fetch.Any return it. The zero AnyRequest is no request.
// These functions skip it, and set the entry of each request to it whose outcome they return.
type AnyRequest struct {
	r     Request
	value uint64 // of a fetch that completed at the call
	kind  outcomeKind
}

// outcomeKind is what the outcome of a request has beside its error.
type outcomeKind uint8

const (
	noRequest outcomeKind = iota
	onlyError
	hasMessage
	hasValue
)

// Any returns a.
func (a AnyRequest) Any() AnyRequest { return a }

// Any returns r as an element of a list.
func (r Request) Any() AnyRequest { return AnyRequest{r: r, kind: onlyError} }

// Any returns r as an element of a list. The function that returns its outcome consumes it,
// as Wait does.
func (r RecvRequest) Any() AnyRequest { return AnyRequest{r: r.Request, kind: hasMessage} }

// Any returns f as an element of a list. The function that returns its outcome consumes it,
// as Wait does.
func (f Fetch[T]) Any() AnyRequest { return AnyRequest{r: f.r, value: uint64(f.v), kind: hasValue} }

// Result is the outcome of one request of a list.
type Result struct {
	// Index of the request in the list; -1: there is no outcome.
	Index int
	// Message of a receive.
	Message
	// Value of a fetch. Convert it to the type of the fetch.
	Value uint64
	// Err is the error of the operation.
	Err error
}

// WaitAny progresses the worker until a request of rs has completed. It returns that outcome,
// consumes it, and sets the entry of rs to the zero AnyRequest. The error is Result.Err.
//
// Result.Index is -1 if no request completed. Then the error is context.Cause(ctx) if ctx
// ended first, ErrInvalid if the requests belong to more than one worker, or nil if rs has no
// request. The operations go on, and the library still owns their buffers.
//
// If several requests have completed, WaitAny returns each of them in its turn: it looks
// round-robin, so a request that is always complete does not starve the others. Each call
// looks at all of rs once, and again after progress. WaitAny does not allocate. It panics
// for a nil ctx if it has to wait.
func WaitAny(ctx context.Context, rs []AnyRequest) (Result, error) {
	var out [1]Result
	n, err := waitSome(ctx, rs, out[:])
	if n == 0 {
		out[0].Index = -1
	}
	return out[0], err
}

// WaitSome is WaitAny for several outcomes. It waits until a request of rs has completed,
// and stores the outcomes of all that have, at most len(out), in out. It returns their
// number and the first error among them. With 0 the error is as for WaitAny, or ErrInvalid if
// out is empty.
func WaitSome(ctx context.Context, rs []AnyRequest, out []Result) (int, error) {
	return waitSome(ctx, rs, out)
}

// WaitAll waits for all requests of rs, and returns the first error in their order. It stores
// the outcome of rs[i] in out[i], and leaves the out of a zero AnyRequest as it is. out may be
// nil. Elements are Request, RecvRequest, Fetch, or, for a list of several kinds, AnyRequest.
//
// If ctx ends first, WaitAll does not wait for the rest. The error is then that of an
// operation, or context.Cause(ctx). A list of AnyRequest still has the requests whose outcomes
// are missing, so that the program can wait again. If the requests belong to more than one worker, or
// out is not nil and shorter than rs, WaitAll waits for none: ErrInvalid. It panics for a nil
// ctx if it has to wait.
func WaitAll[R interface{ Any() AnyRequest }](ctx context.Context, rs []R, out []Result) error {
	if out != nil && len(out) < len(rs) {
		return fmt.Errorf("wait for %d requests with %d results: %w", len(rs), len(out), ErrInvalid)
	}
	w := closedThread
	for i := range rs {
		if a := rs[i].Any(); !a.sameWorker(&w) {
			return errOtherWorker(i)
		}
	}
	var first error
	for i := range rs {
		list := [1]AnyRequest{rs[i].Any()}
		if list[0].kind == noRequest {
			continue
		}
		var result [1]Result
		n, err := waitSome(ctx, list[:], result[:])
		if first == nil {
			first = err
		}
		if n == 0 {
			break
		}
		if a, ok := any(&rs[i]).(*AnyRequest); ok {
			*a = AnyRequest{}
		}
		if out != nil {
			out[i] = result[0]
			out[i].Index = i
		}
	}
	return first
}

// sameWorker reports whether the worker of a is *w, and sets *w to it if it is closedThread.
// Requests that completed at the call belong to no worker.
func (a *AnyRequest) sameWorker(w **thread) bool {
	t := a.r.t
	if t == *w || t == nil || t == closedThread {
		return true
	}
	if *w != closedThread {
		return false
	}
	*w = t
	return true
}

func errOtherWorker(i int) error {
	return fmt.Errorf("wait: request %d belongs to another worker than those before: %w", i, ErrInvalid)
}

// requestList is a list of requests in a wait for the first of them. It has no pointer to the
// worker: with one, the compiler would move the caller's slices to the heap.
type requestList struct {
	rs    []AnyRequest
	out   []Result
	start int // where looks at rs start
}

// waitSome is WaitSome.
func waitSome(ctx context.Context, rs []AnyRequest, out []Result) (n int, err error) {
	w, found := closedThread, false
	for i := range rs {
		if !rs[i].sameWorker(&w) {
			return 0, errOtherWorker(i)
		}
		found = found || rs[i].kind != noRequest
	}
	if !found {
		return 0, nil
	}
	if len(out) == 0 {
		return 0, fmt.Errorf("wait: no room for a result: %w", ErrInvalid)
	}
	l := requestList{rs: rs, out: out}
	if w == closedThread {
		l.start = spread(spreadDone.Add(golden), len(rs))
		n = l.collect(w)
		return n, firstErr(out[:n])
	}
	w.lock()
	l.start = w.looks.start(addressOfList(rs), len(rs))
	n = l.collect(w)
	switch {
	case n > 0:
		w.unlock()
	case w.locked:
		n, err = l.waitShared(ctx, w)
	default:
		n, err = l.wait(ctx, w)
	}
	if n == 0 {
		return 0, err
	}
	return n, firstErr(out[:n])
}

func firstErr(rs []Result) error {
	for i := range rs {
		if rs[i].Err != nil {
			return rs[i].Err
		}
	}
	return nil
}

// collect consumes the outcomes of operations that have completed, as far as there is room
// in out, and returns their number. The caller holds the lock.
func (l *requestList) collect(w *thread) (n int) {
	slots := w.slab.Slots
	for i, left := l.start, len(l.rs); left > 0; i, left = i+1, left-1 {
		if i == len(l.rs) {
			i = 0
		}
		a := &l.rs[i]
		id := a.r.id
		// No slot in flight has the id of a request that is done, 0, or of one that was refused.
		if k := uint32(id); int(k) < len(slots) && uint64(slots[k].Gen) == id>>32 && slots[k].State == request.StateLive || a.kind == noRequest {
			continue
		}
		m := Result{Index: i}
		switch {
		case a.kind == onlyError && id == 0:
		case a.kind == onlyError:
			_, m.Err = a.r.look()
		case a.kind == hasValue && id == 0:
			m.Value = a.value
		case a.r.t == nil:
			m.Err = ErrStale
		default:
			m.Message, _, m.Err = a.r.tryConsume()
			if a.kind == hasValue {
				m.Message, m.Value = Message{}, uint64(m.Tag)
			}
		}
		*a = AnyRequest{}
		l.out[n] = m
		if n++; n == len(l.out) {
			break
		}
	}
	if n > 0 && w != closedThread {
		w.looks.next = uint32(l.out[n-1].Index) + 1
	}
	return n
}

// wait waits in modes in which no other goroutine uses the worker.
func (l *requestList) wait(ctx context.Context, w *thread) (n int, err error) {
	if ctx == nil {
		panic(nilContext)
	}
	var p waitLoop
	for {
		did := w.progress()
		p.n++
		p.did += uint32(did)
		sleepy, slow := false, p.n >= w.ctxCheckPasses
		if slow {
			sleepy, err = p.look(ctx, w)
		}
		if did > 0 || slow { // completions count as items, but for rare ones
			n = l.collect(w)
		}
		if n > 0 || err != nil {
			return n, err
		}
		if sleepy {
			w.sleep(ctx, &p)
		}
	}
}

// waitShared waits in any thread mode. The caller holds the lock; waitShared releases it. As
// long as the goroutine progresses, it looks at the list itself. Before it sleeps or parks it
// becomes a waiter of each operation.
func (l *requestList) waitShared(ctx context.Context, w *thread) (n int, err error) {
	o := &w.owner
	if err := w.mayWait(); err != nil {
		w.unlockShared()
		return 0, err
	}
	if ctx == nil {
		w.unlockShared()
		panic(nilContext)
	}
	owns := o.state == ownerNone
	if owns {
		o.state = ownerRuns
	}
	var x *waiter // in the lists of the operations; nil: not needed yet
	var p waitLoop
	for n == 0 && err == nil {
		if !owns {
			if x == nil {
				x = w.listenAll(l.rs)
			}
			owns, err = w.parkForAny(ctx, x)
			n = l.collect(w)
			continue
		}
		did := w.pass()
		if x == nil && did > 0 || x != nil && x.anyEnded {
			if n = l.collect(w); n > 0 {
				break
			}
		}
		p.n++
		p.did += uint32(did)
		if p.n < w.ctxCheckPasses && o.toWake == nil && o.lockWaiters.Load() == 0 && o.waking.Load() == 0 && !w.callbacks.pending() {
			continue
		}
		var sleepy bool
		sleepy, err = p.betweenPasses(ctx, w)
		switch n = l.collect(w); {
		case n > 0 || err != nil:
		case o.mustTransfer:
			o.transfer(&w.slab)
			owns = false
		case sleepy:
			if x == nil {
				x = w.listenAll(l.rs)
			}
			o.enqueue(&w.slab, x, placePoll)
			w.sleep(ctx, &p)
			x.place, x.cause = placeNone, causeNone
			n = l.collect(w)
		}
	}
	if x != nil {
		for i := range x.several {
			w.slab.unlisten(&x.several[i])
		}
		x.several = x.several[:0]
		x.free()
	}
	if owns {
		w.releaseProgress()
	} else {
		w.unlockShared()
	}
	return n, err
}

// listenAll returns a waiter for each operation of rs, which have not completed.
func (w *thread) listenAll(rs []AnyRequest) *waiter {
	x := waiterPool.Get().(*waiter)
	x.id = 0
	if cap(x.several) < len(rs) {
		x.several = make([]waitNode, 0, len(rs))
	}
	for i := range rs {
		if rs[i].kind != noRequest {
			n := len(x.several)
			x.several = x.several[:n+1]
			w.slab.listen(x, &x.several[n], uint32(rs[i].r.id))
		}
	}
	return x
}

// parkForAny waits in the queue until an operation of x completes, the progress ownership is
// transferred to the goroutine, or ctx ends. The caller holds the lock, and holds it again
// afterwards.
func (w *thread) parkForAny(ctx context.Context, x *waiter) (owns bool, err error) {
	o := &w.owner
	o.enqueue(&w.slab, x, placeQueue)
	w.polling.checkSoon()
	spin := o.cores > 1 && o.state == ownerRuns && o.waking.Load() == 0
	w.unlockShared()
	ended := x.await(ctx, spin)
	if ended {
		err = context.Cause(ctx)
	}
	o.lockPass()
	if ended && x.cause != causeNone {
		w.unlockShared()
		<-x.sema // its wake-up was already decided
		o.lockPass()
	}
	if x.cause == causeNone {
		o.dequeueWaiter(x)
	} else {
		o.waking.Add(-1)
	}
	owns = x.cause == causeOwner
	x.cause = causeNone
	x.state.Store(waiterSpinning)
	return owns, err
}

// lookStart decides where the looks at a list start. If the list is that of the last call,
// they start behind the request that was returned last. Else they start at points that are
// spread evenly, so that no request starves in lists that are used in turn.
type lookStart struct {
	list   uint64 // address of the last list
	next   uint32 // index behind the last result
	spread uint32
}

func (s *lookStart) start(list uint64, n int) int {
	if s.list == list {
		return int(s.next) % n
	}
	s.list = list
	s.spread += golden
	return spread(s.spread, n)
}

// golden is the golden ratio times 2^32: its multiples spread evenly.
const golden = 0x9E3779B9

// spreadDone is the spread of lists whose requests belong to no worker.
var spreadDone atomic.Uint32

// spread returns at, a fraction of 2^32, as an index below n.
func spread(at uint32, n int) int { return int(uint64(at) * uint64(n) >> 32) }
