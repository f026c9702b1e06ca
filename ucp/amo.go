package ucp

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Word is the set of operand types of atomic operations.
type Word interface{ uint32 | uint64 | int64 }

// Atomic is a word in a peer's memory. It is a value: create it once with [AtomicAt]
// and reuse it. The operations of the zero Atomic, and of one whose key is closed,
// return ErrClosed. The methods have the concurrency of the Worker.
//
// Operations are atomic with respect to those of all workers. They are atomic with the
// owner's own sync/atomic operations if the key specifies it (shm and self do).
type Atomic[T Word] struct {
	k   *RemoteKey
	off uint64
}

// AtomicAt returns the word at offset off of k's memory. It checks the range, the
// alignment and whether a transport supports atomics on this memory. The operations do
// not check these again.
//
// Errors: ErrInvalid, ErrRemoteAccess, ErrUnsupported with the reasons, or the
// endpoint's own error.
func AtomicAt[T Word](k *RemoteKey, off uint64) (Atomic[T], error) {
	if err := k.checkAtomic(off, widthOf[T]()); err != nil {
		return Atomic[T]{}, fmt.Errorf("atomic at offset %d: %w", off, err)
	}
	return Atomic[T]{k, off}, nil
}

// widthOf returns the size of T in bytes. The compiler evaluates it to a constant.
func widthOf[T Word]() uint64 {
	if ^T(0)>>16>>16 == 0 { // all bits were shifted out: there are 32
		return 4
	}
	return 8
}

func (k *RemoteKey) checkAtomic(off, width uint64) error {
	if k == nil {
		return ErrClosed
	}
	k.t.lock()
	defer k.t.unlock()
	if k.failed != nil {
		return k.failed
	}
	w := k.t
	if st := k.usable(uct.MemRemoteAtomic); st != ucs.OK {
		return w.reason(w.endpoint(k.e), st)
	}
	switch {
	case k.size < width || off > k.size-width:
		return fmt.Errorf("%d bytes pass the end of a region of %d: %w", width, k.size, ErrInvalid)
	case (k.base+off)%width != 0:
		return fmt.Errorf("address %#x is not a multiple of %d: %w", k.base+off, width, ErrInvalid)
	case k.atomic == nil:
		return fmt.Errorf("%w: %s", ErrUnsupported, k.noAMO)
	case k.atomic.emulKey != 0:
	case width == 4 && k.atomic.attr.Atomic32 == 0, width == 8 && k.atomic.attr.Atomic64 == 0:
		return fmt.Errorf("%d bits: %w", 8*width, ErrUnsupported)
	}
	return nil
}

// Add adds v.
func (a Atomic[T]) Add(v T) Request { return a.post(uct.AtomicAdd, v) }

// And stores the bitwise AND with v.
func (a Atomic[T]) And(v T) Request { return a.post(uct.AtomicAnd, v) }

// Or stores the bitwise OR with v.
func (a Atomic[T]) Or(v T) Request { return a.post(uct.AtomicOr, v) }

// Xor stores the bitwise XOR with v.
func (a Atomic[T]) Xor(v T) Request { return a.post(uct.AtomicXor, v) }

// FetchAdd adds v and returns the previous value.
func (a Atomic[T]) FetchAdd(v T) Fetch[T] { return a.fetch(uct.AtomicAdd, v, 0) }

// FetchAnd stores the bitwise AND with v and returns the previous value.
func (a Atomic[T]) FetchAnd(v T) Fetch[T] { return a.fetch(uct.AtomicAnd, v, 0) }

// FetchOr stores the bitwise OR with v and returns the previous value.
func (a Atomic[T]) FetchOr(v T) Fetch[T] { return a.fetch(uct.AtomicOr, v, 0) }

// FetchXor stores the bitwise XOR with v and returns the previous value.
func (a Atomic[T]) FetchXor(v T) Fetch[T] { return a.fetch(uct.AtomicXor, v, 0) }

// Swap stores v and returns the previous value.
func (a Atomic[T]) Swap(v T) Fetch[T] { return a.fetch(uct.AtomicSwap, v, 0) }

// CompareAndSwap stores new if the word equals old. It returns the previous value,
// which equals old if new was stored.
func (a Atomic[T]) CompareAndSwap(old, new T) Fetch[T] {
	return a.fetch(uct.AtomicCompareSwap, new, old)
}

// Load returns the word.
func (a Atomic[T]) Load() Fetch[T] { return a.fetch(uct.AtomicAdd, 0, 0) }

// post posts an atomic without a result.
//
//hot:bench BenchmarkAtomicAdd
func (a Atomic[T]) post(op uct.AtomicOp, v T) Request {
	k := a.k
	if k != nil {
		var st ucs.Status
		if widthOf[T]() == 4 {
			st = k.amo.Atomic32(op, uint32(v), k.base+a.off, k.amoKey)
		} else {
			st = k.amo.Atomic64(op, uint64(v), k.base+a.off, k.amoKey)
		}
		if st == ucs.OK {
			return Request{}
		}
	}
	return k.postSlow(atomicOp{op, uint8(widthOf[T]()), a.off, uint64(v), 0})
}

// fetch posts an atomic with a result.
//
//hot:bench BenchmarkFetchAdd
func (a Atomic[T]) fetch(op uct.AtomicOp, v, cmp T) Fetch[T] {
	k := a.k
	if k != nil && !k.t.locked {
		var old uint64
		var st ucs.Status
		if t := k.t.slab.NextToken(); widthOf[T]() == 4 {
			var w uint32
			w, st = k.amo.Fetch32(op, uint32(v), uint32(cmp), k.base+a.off, k.amoKey, t)
			old = uint64(w)
		} else {
			old, st = k.amo.Fetch64(op, uint64(v), uint64(cmp), k.base+a.off, k.amoKey, t)
		}
		if st == ucs.OK {
			return Fetch[T]{v: T(old)}
		}
		if st == ucs.InProgress {
			return Fetch[T]{r: k.newFetchSlot(request.Fetch, k.atomic)}
		}
	}
	old, r := k.fetchSlow(atomicOp{op, uint8(widthOf[T]()), a.off, uint64(v), uint64(cmp)})
	return Fetch[T]{T(old), r}
}

// slowAtomics is the uct.Endpoint of a key whose atomics must take the slow path, and its
// uct.WordPutter. With it the fast paths do not have to check whether they may run.
type slowAtomics struct{ uct.Endpoint }

func (slowAtomics) TryPutUint64(uint64, uint64, uct.RKey) bool { return false }

func (slowAtomics) Atomic32(uct.AtomicOp, uint32, uint64, uct.RKey) uct.Status { return ucs.NoResource }

func (slowAtomics) Atomic64(uct.AtomicOp, uint64, uint64, uct.RKey) uct.Status { return ucs.NoResource }

func (slowAtomics) Fetch32(uct.AtomicOp, uint32, uint32, uint64, uct.RKey, uct.Token) (uint32, uct.Status) {
	return 0, ucs.NoResource
}

func (slowAtomics) Fetch64(uct.AtomicOp, uint64, uint64, uint64, uct.RKey, uct.Token) (uint64, uct.Status) {
	return 0, ucs.NoResource
}

// atomicOp is an atomic operation.
type atomicOp struct {
	op     uct.AtomicOp
	width  uint8 // bytes
	off    uint64
	v, cmp uint64
}

func (o atomicOp) post(ep uct.Endpoint, addr uint64, k uct.RKey) ucs.Status {
	if o.width == 4 {
		return ep.Atomic32(o.op, uint32(o.v), addr, k)
	}
	return ep.Atomic64(o.op, o.v, addr, k)
}

func (o atomicOp) fetch(ep uct.Endpoint, addr uint64, k uct.RKey, t uct.Token) (uint64, ucs.Status) {
	if o.width == 4 {
		v, st := ep.Fetch32(o.op, uint32(o.v), uint32(o.cmp), addr, k, t)
		return uint64(v), st
	}
	return ep.Fetch64(o.op, o.v, o.cmp, addr, k, t)
}

//go:noinline
func (k *RemoteKey) postSlow(o atomicOp) Request {
	if k == nil {
		return closedThread.refuse(request.Atomic, Endpoint{}, ucs.Closed)
	}
	k.t.lock()
	defer k.t.unlock()
	if st := k.usable(uct.MemRemoteAtomic); st != ucs.OK {
		return k.t.refuse(request.Atomic, k.e, st)
	}
	if ep, key := k.atomicRoute(o); o.post(ep, k.base+o.off, key) == ucs.OK {
		return Request{}
	}
	return k.t.start(k.newAtomicSlot(request.Atomic, o))
}

//go:noinline
func (k *RemoteKey) fetchSlow(o atomicOp) (uint64, Request) {
	if k == nil {
		return 0, closedThread.refuse(request.Fetch, Endpoint{}, ucs.Closed)
	}
	k.t.lock()
	defer k.t.unlock()
	if st := k.usable(uct.MemRemoteAtomic); st != ucs.OK {
		return 0, k.t.refuse(request.Fetch, k.e, st)
	}
	w := k.t
	ep, key := k.atomicRoute(o)
	old, st := o.fetch(ep, k.base+o.off, key, w.slab.NextToken())
	if st == ucs.OK {
		return old, Request{}
	}
	if st == ucs.InProgress {
		return 0, k.newFetchSlot(request.Fetch, k.atomic)
	}
	return w.startFetch(k.newAtomicSlot(request.Fetch, o))
}

// atomicRoute returns the endpoint that carries out o, and the key for it.
func (k *RemoteKey) atomicRoute(o atomicOp) (uct.Endpoint, uct.RKey) {
	l := k.atomic
	if k.emulates(o) {
		return k.t.lanes[l.lane].emul, l.emulKey
	}
	return k.t.lanes[l.lane].ep, l.rkey
}

// emulates reports whether o is sent as an active message. That is so if the transport
// does not support o. It is also so while o would overtake an emulated atomic that the
// owner has not carried out. So the atomics of an endpoint take effect in the order of
// posting, with or without a fence.
func (k *RemoteKey) emulates(o atomicOp) bool {
	l := k.atomic
	set := l.attr.Atomic64
	if o.width == 4 {
		set = l.attr.Atomic32
	}
	if l.emulKey == 0 || l.emulOnly || !set.Has(o.op) {
		return l.emulKey != 0
	}
	on := &k.t.lanes[l.lane]
	return on.pending > 0 || on.emul.handled < on.emul.atomics
}

// ByMessages reports whether the peer's worker carries out op, by messages, and must progress
// meanwhile. It returns false if the transport carries out op, for the zero Atomic, and for one whose
// key is closed. If any atomic of the word goes by messages, others do too while operations wait for
// resources, so that they stay in order.
func (a Atomic[T]) ByMessages(op uct.AtomicOp) bool {
	if a.k == nil {
		return false
	}
	a.k.t.lock()
	defer a.k.t.unlock()
	l := a.k.atomic
	if a.k.closed || l == nil || l.emulKey == 0 {
		return false
	}
	set := l.attr.Atomic64
	if widthOf[T]() == 4 {
		set = l.attr.Atomic32
	}
	return l.emulOnly || !set.Has(op)
}

// newAtomicSlot returns a slot for o.
func (k *RemoteKey) newAtomicSlot(kind request.Kind, o atomicOp) uint32 {
	i := k.newSlot(kind, k.atomic, o.off)
	s := request.As[wordOp](&k.t.slab.Slots[i])
	s.operand, s.compare, s.form = o.v, o.cmp, rmaForm(o.op)|rmaForm(o.width)<<8
	if k.emulates(o) {
		s.key = uint64(k.atomic.emulKey)
		s.form |= formEmulated
	}
	return i
}

func (s *wordOp) atomicOp() atomicOp {
	return atomicOp{op: uct.AtomicOp(s.form), width: uint8(s.form >> 8), v: s.operand, cmp: s.compare}
}

// wordOperation carries out an atomic, or a put or get of eight bytes, whose slot is a wordOp.
var wordOperation = operation{progress: (*thread).resumeWord}

func (w *thread) resumeWord(i uint32) ucs.Status {
	s := request.As[wordOp](&w.slab.Slots[i])
	if s.Lane == 0 {
		return ucs.Canceled // its endpoint was closed in the meantime
	}
	l := &w.lanes[s.Lane]
	if st := l.status(); st != ucs.OK {
		return st
	}
	ep, key, t := l.oneSided(s.form), uct.RKey(s.key), w.slab.Token(i)
	var v uint64
	var st ucs.Status
	switch {
	case s.Op == request.PutUint64:
		return ep.PutUint64(s.operand, s.addr, key)
	case s.Op == request.Atomic:
		return s.atomicOp().post(ep, s.addr, key)
	case s.Op == request.Fetch:
		v, st = s.atomicOp().fetch(ep, s.addr, key, t)
	case s.form&formBounced != 0:
		st = l.ep.GetBcopy(w.slab.Bufs[i], s.addr, key, t)
		v = binary.LittleEndian.Uint64(w.slab.Bufs[i])
	default:
		v, st = ep.GetUint64(s.addr, key, t)
	}
	if st == ucs.OK {
		s.key = v
	}
	if st == ucs.InProgress {
		s.Parts = 1 // the transport has it: only its event completes it
	}
	return st
}

// Fetch is an operation that returns a value. A transport with direct memory access
// returns the value at the call. Otherwise the value arrives later; the first Wait
// consumes it, and a second Wait returns ErrStale. A program that does not read the
// value must call Drop.
type Fetch[T Word] struct {
	v T
	r Request
}

// Wait progresses the worker until the value has arrived. If ctx ends first, Wait returns
// context.Cause(ctx), and the operation continues. Wait panics for a nil ctx if it has to
// wait.
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

// startFetch tries the operation in slot i. Its value is in the slot's key and is
// consumed as the result of a receive.
func (w *thread) startFetch(i uint32) (uint64, Request) {
	s := &w.slab.Slots[i]
	s.Flags |= request.FlagHasResult
	id, op, ep := w.slab.ID(i), s.Op, s.EP
	st := w.try(i)
	if st == ucs.InProgress {
		return 0, Request{w, id}
	}
	v := request.As[wordOp](&w.slab.Slots[i]).key
	if st != ucs.OK && w.noteFailure(i, st) {
		return 0, Request{w, id}
	}
	w.slab.release(i)
	if st != ucs.OK {
		return 0, w.refuse(op, w.handle(ep), st)
	}
	return v, Request{}
}

// newFetchSlot takes the slot of an operation that returned InProgress. The transport got
// the token of the next free slot, which is this one.
//
//go:noinline
func (k *RemoteKey) newFetchSlot(op request.Kind, l *keyLane) Request {
	i := k.newSlot(op, l, 0)
	s := &k.t.slab.Slots[i]
	s.Flags |= request.FlagHasResult
	s.Parts = 1
	return Request{k.t, k.t.slab.ID(i)}
}
