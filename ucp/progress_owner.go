package ucp

import (
	"context"
	"runtime"
	"sync/atomic"
)

// Progress ownership.
//
// With ThreadMulti at most one goroutine at a time owns the progress of a worker, and
// only the owner calls into the transports' Progress. A goroutine that waits acquires
// the ownership if it is free. Otherwise it parks on its own channel, until its
// operation completes or the ownership is transferred to it. The async goroutine of a
// transport is an owner too, for short turns (progress.go).
//
// Invariants:
//
//   - Every waiter is in the list of its operation and, unless it is the owner, in the
//     queue for the ownership. So it is woken by whichever comes first.
//   - An owner that stops, for whatever reason, transfers the ownership to the first in
//     the queue, or frees it. Pending callbacks run before that, or on the next owner.
//   - Worker.mu guards all fields but running. It is free while the owner sleeps or runs
//     a callback, so that other goroutines can post.
//   - A goroutine is woken after mu was released, in the order in which the wake-ups were
//     decided. Its result is written before waiter.state, so it needs no mu to read it.

// progressOwner is the progress ownership of a worker with ThreadMulti.
type progressOwner struct {
	held         bool // a goroutine owns the progress
	sleeping     bool // the owner sleeps in poll
	yielding     bool // the owner has released mu to let woken goroutines run
	mustTransfer bool // the owner must transfer the ownership to the first in the queue
	mustWake     bool // a sleeping owner must wake up: its operation completed, or a transport has a timer now

	first, last *waiter  // queue for the ownership
	toWake      *waiter  // to be woken when mu is released, in this order
	toWakeTail  **waiter // end of wakes

	waking atomic.Int32 // woken goroutines that do not run yet
}

// waitShared waits for operation id in any thread mode. With id 0 it waits until ctx
// ends or the worker is closed. It also reports whether the operation has completed:
// err is then its outcome, otherwise the reason why the wait ended.
//
//go:noinline
func (w *thread) waitShared(ctx context.Context, id uint64, take bool) (m Message, ended bool, err error) {
	w.lockShared()
	return w.waitLocked(ctx, id, take)
}

// waitLocked is waitShared for a caller that holds the lock. It releases the lock.
func (w *thread) waitLocked(ctx context.Context, id uint64, take bool) (m Message, ended bool, err error) {
	m, ended, err = w.outcome(id, take)
	if !ended {
		err = w.mayWait()
	}
	if ended || err != nil {
		w.unlockShared()
		return m, ended, err
	}
	if w.owner.held {
		return w.park(ctx, id, take)
	}
	w.owner.held = true
	return w.progressUntil(ctx, id, take)
}

// outcome returns the state of operation id. With take it consumes the result.
func (w *thread) outcome(id uint64, take bool) (m Message, ended bool, err error) {
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

// progressUntil progresses the worker until operation id has completed. The caller holds the
// lock and the progress ownership. drive releases both.
func (w *thread) progressUntil(ctx context.Context, id uint64, take bool) (Message, bool, error) {
	b := &w.owner
	var p waitLoop
	for {
		n := w.pass()
		if take {
			if m, ok := w.consumeDone(id); ok {
				w.releaseProgress()
				return m, true, nil
			}
		}
		m, ended, err := w.outcome(id, take)
		if ended {
			w.releaseProgress()
			return m, true, err
		}
		p.n++
		p.did += uint32(n)
		sleepy := false
		switch {
		case len(w.dueCallbacks)+len(w.am.failureCalls) > 0:
			w.runCallbacks()
		case p.n >= w.ctxCheckPasses:
			w.unlockShared()
			sleepy, err = p.look(ctx, w)
			w.lockPass()
		case b.toWake == nil && w.lockWaiters.Load() == 0 && b.waking.Load() == 0:
			continue
		default:
			b.yielding = b.toWake != nil || b.waking.Load() != 0
			w.unlockShared()
			if b.waking.Load() != 0 {
				runtime.Gosched() // woken goroutines can post their next operations
			}
			w.lockPass()
			b.yielding = false
		}
		if m, ended, opErr := w.outcome(id, take); ended || err != nil {
			w.releaseProgress()
			if ended {
				return m, true, opErr
			}
			return m, false, err
		}
		if b.mustTransfer {
			w.transferProgress()
			return w.park(ctx, id, take)
		}
		if sleepy && w.sleepShared(ctx, &p, id, take, &m, &err) {
			w.releaseProgress()
			return m, true, err
		}
	}
}

// releaseProgress runs the pending callbacks, transfers the progress ownership and releases the
// lock.
func (w *thread) releaseProgress() {
	if len(w.dueCallbacks)+len(w.am.failureCalls) > 0 {
		w.runCallbacks()
	}
	w.transferProgress()
	w.unlockShared()
}

// transferProgress transfers the progress ownership to the first in the queue. It frees the
// ownership if the queue is empty.
func (w *thread) transferProgress() {
	b := &w.owner
	x := b.first
	if x == nil {
		b.held = false
		return
	}
	w.removeWaiter(x)
	x.cause = causeOwner
	b.addToWake(x)
}

// park waits for operation id while another goroutine owns the progress. The caller
// holds the lock; park releases it.
func (w *thread) park(ctx context.Context, id uint64, take bool) (Message, bool, error) {
	b := &w.owner
	x := waiterPool.Get().(*waiter)
	x.id, x.consume = id, take
	w.enqueueWaiter(x, false)
	// Spinning helps only while the owner runs in parallel.
	spin := w.cores > 1 && !b.sleeping && !b.yielding && b.waking.Load() == 0
	w.unlockShared()
	ctxEnded := x.await(ctx, spin)
	if !ctxEnded && x.cause == causeDone {
		b.waking.Add(-1)
		return x.end()
	}
	var cause error
	if ctxEnded {
		cause = context.Cause(ctx) // before x is read: both may have ended
	}
	w.lockPass()
	if ctxEnded {
		if x.cause == causeNone {
			w.removeWaiter(x)
			w.unlockShared()
			x.free()
			return Message{}, false, cause
		}
		w.unlockShared()
		x.awaitWake() // its wake-up was already decided
		w.lockPass()
	}
	b.waking.Add(-1)
	switch x.cause {
	case causeDone:
		w.unlockShared()
		return x.end()
	default:
		x.free()
		if m, ended, err := w.outcome(id, take); ended {
			w.releaseProgress()
			return m, true, err
		}
		return w.progressUntil(ctx, id, take)
	}
}

// sleepShared makes the owner sleep in poll; the lock is free meanwhile. It returns
// true if the operation completed other than by progress. m and err are then its
// outcome.
func (w *thread) sleepShared(ctx context.Context, p *waitLoop, id uint64, take bool, m *Message, err *error) bool {
	x := waiterPool.Get().(*waiter)
	x.id, x.consume = id, take
	w.enqueueWaiter(x, true)
	w.sleep(ctx, p)
	ended := x.cause == causeDone
	if ended {
		*m, *err = x.m, x.err
	} else {
		w.removeWaiter(x)
	}
	x.free()
	return ended
}

// acquireProgress acquires the progress ownership, because the worker closes. It returns false if
// the present owner does not return from a callback within CloseTimeout. The caller
// holds the lock.
func (w *thread) acquireProgress() bool {
	b := &w.owner
	if !b.held {
		b.held = true
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	x := waiterPool.Get().(*waiter)
	x.id, x.consume = 0, false
	w.enqueueWaiter(x, false)
	b.mustTransfer = true
	if b.sleeping {
		w.signal()
	}
	w.unlockShared()
	ended := x.await(ctx, false)
	w.lockPass()
	b.mustTransfer = false
	if ended && x.cause == causeNone {
		w.removeWaiter(x)
		x.free()
		return false
	}
	if ended { // its wake-up was already decided
		w.unlockShared()
		x.awaitWake()
		w.lockPass()
	}
	b.waking.Add(-1)
	x.free()
	return true
}

// endIdleWaits ends the waits without an operation with ErrClosed, after the worker has
// closed. Then it transfers or frees the progress ownership.
func (w *thread) endIdleWaits() {
	b := &w.owner
	for x := b.first; x != nil; {
		next := x.next
		if x.id == 0 {
			x.err = ErrClosed
			w.resolveWaiter(x, causeDone)
		}
		x = next
	}
	w.transferProgress()
}
