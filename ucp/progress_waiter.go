package ucp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs/cpu"
)

// waiter is a goroutine that waits for an operation, or for the progress ownership
// alone.
type waiter struct {
	id      uint64 // of the operation; 0: none
	consume bool   // consume the result

	// Guarded by progressOwner.mu.
	m        Message
	err      error
	cause    wakeCause
	sleeps   bool // it is the owner and sleeps in poll
	nextOfOp *waiter
	next     *waiter
	prev     *waiter
	wakeNext *waiter

	state atomic.Uint32
	sema  chan struct{}
}

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
	x.m, x.err, x.cause, x.sleeps = Message{}, nil, causeNone, false
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

// enqueue adds x to the queue for the progress ownership and to the waiters of its
// operation. A sleeping owner is added to the latter only. A waiter without an
// operation goes to the front of the queue, since it does not leave with the next
// completion.
func (o *progressOwner) enqueue(b *slab, x *waiter, sleeps bool) {
	x.sleeps = sleeps
	if x.id != 0 {
		i := uint32(x.id)
		b.Slots[i].Flags |= request.FlagNotify | request.FlagExtra
		n := b.listener(i)
		x.nextOfOp, n.waiters = n.waiters, x
	}
	switch {
	case sleeps:
	case o.first == nil:
		o.first, o.last = x, x
	case x.id == 0:
		x.next, o.first.prev, o.first = o.first, x, x
	default:
		x.prev, o.last.next, o.last = o.last, x, x
	}
}

// remove removes x, whose fate is not decided, from both.
func (o *progressOwner) remove(b *slab, x *waiter) {
	if x.id != 0 {
		p := &b.listener(uint32(x.id)).waiters
		for *p != x {
			p = &(*p).nextOfOp
		}
		*p, x.nextOfOp = x.nextOfOp, nil
	}
	o.dequeueWaiter(x)
}

// dequeueWaiter removes x from the queue for the progress ownership.
func (o *progressOwner) dequeueWaiter(x *waiter) {
	if x.sleeps {
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

// resolveWaiter ends the wait of x with f. x is no longer in the list of its operation.
func (o *progressOwner) resolveWaiter(x *waiter, f wakeCause) {
	x.nextOfOp = nil
	x.cause = f
	if x.sleeps {
		o.mustWake = true // unlockSlow signals the sleeping owner
		return
	}
	o.dequeueWaiter(x)
	o.addToWake(x)
}
