package ucp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs/cpu"
)

// waiter is a goroutine that waits for an operation, for the first of several, or for the
// progress ownership alone.
type waiter struct {
	id      uint64 // of the operation; 0: none, or several
	consume bool   // consume the result

	// Guarded by progressOwner.mu.
	m        Message
	err      error
	cause    wakeCause
	place    waiterPlace
	anyEnded bool       // one of several operations has completed
	node     waitNode   // in the list of its operation
	several  []waitNode // in the lists of several operations
	next     *waiter
	prev     *waiter
	wakeNext *waiter

	state atomic.Uint32
	sema  chan struct{}
}

// waitNode is a waiter in the list of the waiters of one operation.
type waitNode struct {
	x    *waiter // nil: not in a list
	next *waitNode
	slot uint32 // of the operation
}

// waiterPlace says where a waiter waits.
type waiterPlace uint8

const (
	placeNone  waiterPlace = iota // nowhere: it progresses, or does not wait yet
	placeQueue                    // in the queue for the progress ownership
	placePoll                     // it is the owner and sleeps in poll
)

// wakeCause is the reason why a waiter is woken.
type wakeCause uint8

const (
	causeNone  wakeCause = iota
	causeDone            // its operation completed: m, err
	causeOwner           // it owns the progress
)

// Values of waiter.state.
const (
	waiterSpinning uint32 = iota
	waiterParked
	waiterWoken
)

var waiterPool = sync.Pool{New: func() any { return &waiter{sema: make(chan struct{}, 1)} }}

// end returns the result of the completed operation and frees x.
func (x *waiter) end() (m Message, ended bool, err error) {
	m, err = x.m, x.err
	x.free()
	return m, true, err
}

func (x *waiter) free() {
	x.m, x.err, x.cause, x.place, x.anyEnded = Message{}, nil, causeNone, placeNone, false
	x.state.Store(waiterSpinning)
	waiterPool.Put(x)
}

// maxParkSpins is the number of polls before a goroutine parks, about 1 us. An operation
// that is about to complete may do so within that time.
const maxParkSpins = 60

// await waits until x's fate is decided. It returns true if ctx ended first.
//
// Its CompareAndSwap pairs with the Swap in wake. If await is first, wake sends to
// sema. If wake is first, await does not park. So no wake-up is lost.
func (x *waiter) await(ctx context.Context, spin bool) bool {
	for k := 0; spin && k < maxParkSpins; k++ {
		if x.state.Load() == waiterWoken {
			return false
		}
		cpu.Pause()
	}
	if !x.state.CompareAndSwap(waiterSpinning, waiterParked) {
		return false
	}
	ends := ctx.Done()
	if ends == nil {
		<-x.sema
		return false
	}
	select {
	case <-x.sema:
		return false
	case <-ends:
		return true
	}
}

// wake wakes x, whose fate is decided. The caller does not hold the lock.
func (x *waiter) wake(w *thread) {
	w.owner.waking.Add(1)
	if x.state.Swap(waiterWoken) == waiterParked {
		x.sema <- struct{}{}
	}
}

// addToWake adds x to the goroutines to be woken when the lock is released.
func (o *progressOwner) addToWake(x *waiter) {
	if o.toWake == nil {
		o.toWakeTail = &o.toWake
	}
	*o.toWakeTail = x
	o.toWakeTail = &x.wakeNext
}

// enqueue makes x wait at place, and adds it to the waiters of its operation. In the queue, a
// waiter without an operation goes to the front, since it does not leave with the next
// completion.
func (o *progressOwner) enqueue(b *slab, x *waiter, place waiterPlace) {
	x.place = place
	if x.id != 0 {
		b.listen(x, &x.node, uint32(x.id))
	}
	switch {
	case place != placeQueue:
	case o.first == nil:
		o.first, o.last = x, x
	case x.id == 0 && len(x.several) == 0:
		x.next, o.first.prev, o.first = o.first, x, x
	default:
		x.prev, o.last.next, o.last = o.last, x, x
	}
}

// remove removes x, whose fate is not decided, from both.
func (o *progressOwner) remove(b *slab, x *waiter) {
	b.unlisten(&x.node)
	o.dequeueWaiter(x)
}

// listen adds x, by its node n, to the waiters of the operation in slot i.
func (b *slab) listen(x *waiter, n *waitNode, i uint32) {
	b.Slots[i].Flags |= request.FlagNotify | request.FlagExtra
	l := b.listener(i)
	n.x, n.slot = x, i
	n.next, l.waiters = l.waiters, n
}

// unlisten removes n from the waiters of its operation, if it is there.
func (b *slab) unlisten(n *waitNode) {
	if n.x == nil {
		return
	}
	p := &b.listener(n.slot).waiters
	for *p != n {
		p = &(*p).next
	}
	*p, n.next, n.x = n.next, nil, nil
}

// dequeueWaiter ends the wait of x at its place.
func (o *progressOwner) dequeueWaiter(x *waiter) {
	queued := x.place == placeQueue
	x.place = placeNone
	if !queued {
		return
	}
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		o.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		o.last = x.prev
	}
	x.next, x.prev = nil, nil
}

// resolveWaiter ends the wait of x with f. x is no longer in the list of its operation. A
// waiter for several operations that does not wait at the moment will look at them itself.
func (o *progressOwner) resolveWaiter(x *waiter, f wakeCause) {
	switch x.place {
	case placePoll:
		x.cause = f
		o.mustWake = true // unlockSlow signals the sleeping owner
	case placeQueue:
		x.cause = f
		o.dequeueWaiter(x)
		o.addToWake(x)
	default:
	}
}
