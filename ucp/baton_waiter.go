package ucp

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// waiter is a goroutine that waits for an operation, or for the baton alone.
type waiter struct {
	id   uint64 // of the operation; 0: none
	take bool   // consumes its result

	// Guarded by Worker.mu.
	m        Message
	err      error
	fate     fate
	poller   bool // it sleeps in poll, with the baton
	chain    *waiter
	next     *waiter
	prev     *waiter
	wakeNext *waiter

	state atomic.Uint32
	sema  chan struct{}
}

// fate is what became of a waiter.
type fate uint8

const (
	fateNone  fate = iota
	fateEnded      // its operation ended: m, err
	fateBaton      // it has the baton
)

// How a waiter waits: waiter.state.
const (
	waitSpins uint32 = iota
	waitParked
	waitOver
)

var waiters = sync.Pool{New: func() any { return &waiter{sema: make(chan struct{}, 1)} }}

// end returns the result of an operation that ended.
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

// spinParks is for how many looks a goroutine spins before it parks: about 1 us,
// within which an operation may end that is on its way already.
const spinParks = 60

// await waits until somebody decides x's fate, or ctx ends: true.
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

// wake tells x that its fate is decided.
func (x *waiter) wake(w *Worker) {
	w.baton.running.Add(1)
	if x.state.Swap(waitOver) == waitParked {
		x.sema <- struct{}{}
	}
}

// push has x woken when the lock is given back.
func (b *baton) push(x *waiter) {
	if b.wakes == nil {
		b.lastWake = &b.wakes
	}
	*b.lastWake = x
	b.lastWake = &x.wakeNext
}

// enlist puts x in line for the baton, and among those who hear of the end of
// its operation. Who waits for no operation goes to the front: it does not leave
// with the next message.
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

// delist takes x, whose fate is not decided, out of both.
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

// unline takes x out of the line for the baton.
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

// decide ends the waiting of x, which is off its slot's chain.
func (w *Worker) decide(x *waiter, f fate) {
	x.chain = nil
	x.fate = f
	if x.poller {
		w.baton.rouse = true // whoever gives the lock back signals
		return
	}
	w.unline(x)
	w.baton.push(x)
}
