package ucp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// waiter is a goroutine that waits for an operation, or for the progress ownership
// alone.
type waiter struct {
	id   uint64 // of the operation; 0: none
	take bool   // consume the result

	// Guarded by Worker.mu.
	m        Message
	err      error
	fate     fate
	poller   bool // it is the owner and sleeps in poll
	chain    *waiter
	next     *waiter
	prev     *waiter
	wakeNext *waiter

	state atomic.Uint32
	sema  chan struct{}
}

// fate is the reason why a waiter is woken.
type fate uint8

const (
	fateNone  fate = iota
	fateEnded      // its operation completed: m, err
	fateBaton      // it owns the progress
)

// Values of waiter.state.
const (
	waitSpins uint32 = iota
	waitParked
	waitOver
)

var waiters = sync.Pool{New: func() any { return &waiter{sema: make(chan struct{}, 1)} }}

// end returns the result of the completed operation and frees x.
func (x *waiter) end() (m Message, ended bool, err error) {
	m, err = x.m, x.err
	x.free()
	return m, true, err
}

func (x *waiter) free() {
	x.m, x.err, x.fate, x.poller = Message{}, nil, fateNone, false
	x.state.Store(waitSpins)
	waiters.Put(x)
}

// spinParks is the number of polls before a goroutine parks, about 1 us. An operation
// that is about to complete may do so within that time.
const spinParks = 60

// await waits until x's fate is decided. It returns true if ctx ended first.
//
// Its CompareAndSwap pairs with the Swap in wake. If await is first, wake sends to
// sema. If wake is first, await does not park. So no wake-up is lost.
func (x *waiter) await(ctx context.Context, spin bool) bool {
	for k := 0; spin && k < spinParks; k++ {
		if x.state.Load() == waitOver {
			return false
		}
		cpu.Pause()
	}
	if !x.state.CompareAndSwap(waitSpins, waitParked) {
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

// settle waits for the wake-up of a parked x, whose fate is decided.
func (x *waiter) settle() { <-x.sema }

// wake wakes x, whose fate is decided. The caller does not hold the lock.
func (x *waiter) wake(w *Worker) {
	w.baton.running.Add(1)
	if x.state.Swap(waitOver) == waitParked {
		x.sema <- struct{}{}
	}
}

// push adds x to the goroutines to be woken when the lock is released.
func (b *baton) push(x *waiter) {
	if b.wakes == nil {
		b.lastWake = &b.wakes
	}
	*b.lastWake = x
	b.lastWake = &x.wakeNext
}

// enlist adds x to the queue for the progress ownership and to the waiters of its
// operation. A sleeping owner is added to the latter only. A waiter without an
// operation goes to the front of the queue, since it does not leave with the next
// completion.
func (w *Worker) enlist(x *waiter, poller bool) {
	b := &w.baton
	x.poller = poller
	if x.id != 0 {
		i := uint32(x.id)
		w.slab.slots[i].flags |= flagNotify | flagAside
		n := w.slab.note(i)
		x.chain, n.wait = n.wait, x
	}
	switch {
	case poller:
	case b.first == nil:
		b.first, b.last = x, x
	case x.id == 0:
		x.next, b.first.prev, b.first = b.first, x, x
	default:
		x.prev, b.last.next, b.last = b.last, x, x
	}
}

// delist removes x, whose fate is not decided, from both.
func (w *Worker) delist(x *waiter) {
	if x.id != 0 {
		p := &w.slab.note(uint32(x.id)).wait
		for *p != x {
			p = &(*p).chain
		}
		*p, x.chain = x.chain, nil
	}
	w.unline(x)
}

// unline removes x from the queue for the progress ownership.
func (w *Worker) unline(x *waiter) {
	if x.poller {
		return
	}
	b := &w.baton
	if x.prev != nil {
		x.prev.next = x.next
	} else {
		b.first = x.next
	}
	if x.next != nil {
		x.next.prev = x.prev
	} else {
		b.last = x.prev
	}
	x.next, x.prev = nil, nil
}

// decide ends the wait of x with f. x is no longer in the list of its operation.
func (w *Worker) decide(x *waiter, f fate) {
	x.chain = nil
	x.fate = f
	if x.poller {
		w.baton.rouse = true // unlockSlow signals the sleeping owner
		return
	}
	w.unline(x)
	w.baton.push(x)
}
