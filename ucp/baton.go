package ucp

import (
	"context"
	"runtime"
	"sync/atomic"
)

// baton is the right to progress a worker of ThreadMulti. Whoever waits takes it
// where it is free; the others park, each on its own semaphore, and are woken by
// the end of their operation, or handed the baton. Worker.mu guards the data and
// is free while its holder sleeps or runs a callback, so that others may post.
type baton struct {
	held   bool // somebody progresses
	inPoll bool // and sleeps
	away   bool // and lets those run who were woken
	evict  bool // and is to hand the baton to the first in line
	rouse  bool // the sleeper is to look: what it waits for has ended, or something waits for time

	first, last *waiter  // who would take the baton
	wakes       *waiter  // to be woken when mu is given back, in this order
	lastWake    **waiter // where the next is added

	running atomic.Int32 // were woken and do not run yet
}

// waitShared waits for operation id in every mode; 0: until ctx ends or the
// worker is closed. It also reports whether the operation has ended: err is its
// outcome then, else the reason why the wait stopped.
//
//go:noinline
func (w *Worker) waitShared(ctx context.Context, id uint64, take bool) (m Message, ended bool, err error) {
	w.lockShared()
	return w.waitLocked(ctx, id, take)
}

// waitLocked is waitShared with the lock, which it gives back.
func (w *Worker) waitLocked(ctx context.Context, id uint64, take bool) (m Message, ended bool, err error) {
	m, ended, err = w.outcome(id, take)
	if !ended {
		err = w.mayWait()
	}
	if ended || err != nil {
		w.unlockShared()
		return m, ended, err
	}
	if w.baton.held {
		return w.park(ctx, id, take)
	}
	w.baton.held = true
	return w.drive(ctx, id, take)
}

// outcome looks at operation id; with take its result is consumed.
func (w *Worker) outcome(id uint64, take bool) (m Message, ended bool, err error) {
	switch {
	case id == 0:
		if w.closed.Load() {
			return m, true, ErrClosed
		}
		return m, false, nil
	case take:
		return w.tryConsume(id)
	}
	ended, err = w.look(id)
	return m, ended, err
}

// drive progresses until operation id has ended. The caller has the lock and the
// baton and loses both.
func (w *Worker) drive(ctx context.Context, id uint64, take bool) (Message, bool, error) {
	b := &w.baton
	var p pause
	for {
		n := w.pass()
		if take {
			if m, ok := w.takeDone(id); ok {
				w.passOn()
				return m, true, nil
			}
		}
		m, ended, err := w.outcome(id, take)
		if ended {
			w.passOn()
			return m, true, err
		}
		p.n++
		p.did += uint32(n)
		sleepy := false
		switch {
		case len(w.calls)+len(w.am.failed) > 0:
			w.runCalls()
		case p.n >= w.looks:
			w.unlockShared()
			sleepy, err = p.look(ctx, w)
			w.lockPass()
		case b.wakes == nil && w.want.Load() == 0 && b.running.Load() == 0:
			continue
		default:
			b.away = b.wakes != nil || b.running.Load() != 0
			w.unlockShared()
			if b.running.Load() != 0 {
				runtime.Gosched() // those who were woken post what comes next
			}
			w.lockPass()
			b.away = false
		}
		if m, ended, over := w.outcome(id, take); ended || err != nil {
			w.passOn()
			if ended {
				return m, true, over
			}
			return m, false, err
		}
		if b.evict {
			w.handOn()
			return w.park(ctx, id, take)
		}
		if sleepy && w.sleepShared(ctx, &p, id, take, &m, &err) {
			w.passOn()
			return m, true, err
		}
	}
}

// passOn runs the callbacks that are due and gives baton and lock away.
func (w *Worker) passOn() {
	if len(w.calls)+len(w.am.failed) > 0 {
		w.runCalls()
	}
	w.handOn()
	w.unlockShared()
}

// handOn gives the baton to the first in line.
func (w *Worker) handOn() {
	b := &w.baton
	x := b.first
	if x == nil {
		b.held = false
		return
	}
	w.delist(x)
	x.fate = fateBaton
	b.push(x)
}

// park waits for operation id while another goroutine progresses. The caller has
// the lock and loses it.
func (w *Worker) park(ctx context.Context, id uint64, take bool) (Message, bool, error) {
	b := &w.baton
	x := waiters.Get().(*waiter)
	x.id, x.take = id, take
	w.enlist(x, false)
	// Spinning is of use while the one who progresses runs beside.
	spin := w.cores > 1 && !b.inPoll && !b.away && b.running.Load() == 0
	w.unlockShared()
	ctxEnded := x.await(ctx, spin)
	if !ctxEnded && x.fate == fateEnded {
		b.running.Add(-1)
		return x.end()
	}
	var cause error
	if ctxEnded {
		cause = context.Cause(ctx) // before the look at x: both may have ended
	}
	w.lockPass()
	if ctxEnded {
		if x.fate == fateNone {
			w.delist(x)
			w.unlockShared()
			x.free()
			return Message{}, false, cause
		}
		w.unlockShared()
		x.settle() // it was being woken
		w.lockPass()
	}
	b.running.Add(-1)
	switch x.fate {
	case fateEnded:
		w.unlockShared()
		return x.end()
	default:
		x.free()
		if m, ended, err := w.outcome(id, take); ended {
			w.passOn()
			return m, true, err
		}
		return w.drive(ctx, id, take)
	}
}

// sleepShared sleeps in poll with the baton while the lock is free. True: the
// operation ended by something else than progress; m and err are its outcome.
func (w *Worker) sleepShared(ctx context.Context, p *pause, id uint64, take bool, m *Message, err *error) bool {
	x := waiters.Get().(*waiter)
	x.id, x.take = id, take
	w.enlist(x, true)
	w.sleep(ctx, p)
	ended := x.fate == fateEnded
	if ended {
		*m, *err = x.m, x.err
	} else {
		w.delist(x)
	}
	x.free()
	return ended
}

// seize acquires progress ownership, because the worker closes. It returns false if the
// present owner does not return from a callback within CloseTimeout. The lock is held.
func (w *Worker) seize() bool {
	b := &w.baton
	if !b.held {
		b.held = true
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	x := waiters.Get().(*waiter)
	x.id, x.take = 0, false
	w.enlist(x, false)
	b.evict = true
	if b.inPoll {
		w.Signal()
	}
	w.unlockShared()
	ended := x.await(ctx, false)
	w.lockPass()
	b.evict = false
	if ended && x.fate == fateNone {
		w.delist(x)
		x.free()
		return false
	}
	if ended { // its wake-up is on its way
		w.unlockShared()
		x.settle()
		w.lockPass()
	}
	b.running.Add(-1)
	x.free()
	return true
}

// dismiss ends the waiting of those who have no operation, after the worker has
// closed, and frees the baton.
func (w *Worker) dismiss() {
	b := &w.baton
	for x := b.first; x != nil; {
		next := x.next
		if x.id == 0 {
			x.err = ErrClosed
			w.decide(x, fateEnded)
		}
		x = next
	}
	w.handOn()
}
