package ucp

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucp/internal/lock"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Progress ownership.
//
// With ThreadMulti at most one goroutine at a time owns the progress of a worker, and
// only the owner calls into the transports' Progress. A goroutine that waits acquires
// the ownership if it is free. Otherwise it parks on its own channel, until its
// operation completes or the ownership is transferred to it. The async goroutine of a
// transport is an owner too, for short turns (resumeUnattended).
//
// Invariants:
//
//   - Every waiter is in the list of its operation, or of each operation that it waits for,
//     and, unless it is the owner, in the queue for the ownership. So it is woken by
//     whichever comes first.
//   - An owner that stops, for whatever reason, transfers the ownership to the first in
//     the queue, or frees it. Pending callbacks run before that, or on the next owner.
//   - mu guards all fields but waking. It is free while the owner sleeps or runs
//     a callback, so that other goroutines can post.
//   - A goroutine is woken after mu was released, in the order in which the wake-ups were
//     decided. Its result is written before waiter.state, so it needs no mu to read it.

// ownerState says whether a goroutine owns the progress, and what it does.
type ownerState uint8

const (
	ownerNone   ownerState = iota
	ownerRuns              // it progresses the worker, or runs a callback
	ownerYields            // it has released mu to let woken goroutines run
	ownerSleeps            // it sleeps in poll; mu is free
)

// progressOwner is the progress ownership of a worker with ThreadMulti.
type progressOwner struct {
	mu          lock.Spin // guards the thread
	cores       int
	lockWaiters atomic.Int32  // goroutines that wait for mu to post; passes let them go first
	granted     atomic.Uint32 // number of times that such a goroutine got mu

	state        ownerState
	mustTransfer bool // the owner must transfer the ownership to the first in the queue
	mustWake     bool // a sleeping owner must wake up: its operation completed, or a transport has a timer now

	first, last *waiter  // queue for the ownership
	toWake      *waiter  // to be woken when mu is released, in this order
	toWakeTail  **waiter // end of wakes

	waking atomic.Int32 // woken goroutines that do not run yet

	ofThread bool // in builds with the tag ucxdebug: the lock is a Thread's, which one goroutine uses
}

// waitShared waits for r in any thread mode. A request with id 0 waits until ctx ends or the worker
// is closed. With take it consumes the result. It also reports whether the operation has completed:
// err is then its outcome, otherwise the reason why the wait ended. The caller holds the lock;
// waitShared releases it.
func (r Request) waitShared(ctx context.Context, take bool) (m Message, ended bool, err error) {
	w := r.t
	m, ended, err = r.outcome(take)
	if !ended {
		err = w.mayWait()
	}
	if ended || err != nil {
		w.unlockShared()
		return m, ended, err
	}
	if ctx == nil {
		w.unlockShared()
		panic(nilContext)
	}
	if w.owner.state != ownerNone {
		return r.park(ctx, take)
	}
	w.owner.state = ownerRuns
	return r.progressUntil(ctx, take)
}

// outcome returns the state of the operation that waitShared waits for.
func (r Request) outcome(take bool) (m Message, ended bool, err error) {
	switch {
	case r.id == 0:
		if r.t.life.closed() {
			return m, true, ErrClosed
		}
		return m, false, nil
	case take:
		return r.tryConsume()
	}
	ended, err = r.look()
	return m, ended, err
}

// progressUntil is the part of waitShared that progresses the worker. The caller holds the lock and
// the progress ownership; progressUntil releases both.
func (r Request) progressUntil(ctx context.Context, take bool) (Message, bool, error) {
	w := r.t
	o := &w.owner
	var p waitLoop
	for {
		n := w.pass()
		if take {
			if m, ok := w.slab.consumeDone(r.id); ok {
				w.releaseProgress()
				return m, true, nil
			}
		}
		m, ended, err := r.outcome(take)
		if ended {
			w.releaseProgress()
			return m, true, err
		}
		p.n++
		p.did += uint32(n)
		if p.n < w.ctxCheckPasses && o.toWake == nil && o.lockWaiters.Load() == 0 && o.waking.Load() == 0 && !w.callbacks.pending() {
			continue
		}
		sleepy, err := p.betweenPasses(ctx, w)
		if m, ended, opErr := r.outcome(take); ended || err != nil {
			w.releaseProgress()
			if ended {
				return m, true, opErr
			}
			return m, false, err
		}
		if o.mustTransfer {
			w.owner.transfer(&w.slab)
			return r.park(ctx, take)
		}
		if !sleepy {
			continue
		}
		// The owner sleeps in poll; the lock is free meanwhile. So the operation may also
		// complete other than by progress.
		x := waiterPool.Get().(*waiter)
		x.id, x.consume = r.id, take
		o.enqueue(&w.slab, x, placePoll)
		w.sleep(ctx, &p)
		if x.cause == causeDone {
			w.releaseProgress()
			return x.end()
		}
		o.remove(&w.slab, x)
		x.free()
	}
}

// betweenPasses runs the callbacks that are due, or looks at ctx and the time, or lets other
// goroutines have the lock. The caller holds the lock and the progress ownership.
//
//go:noinline
func (p *waitLoop) betweenPasses(ctx context.Context, w *thread) (sleepy bool, err error) {
	o := &w.owner
	switch {
	case w.callbacks.pending():
		w.runCallbacks()
	case p.n >= w.ctxCheckPasses:
		w.unlockShared()
		sleepy, err = p.look(ctx, w)
		o.lockPass()
	default:
		if o.toWake != nil || o.waking.Load() != 0 {
			o.state = ownerYields
		}
		w.unlockShared()
		if o.waking.Load() != 0 {
			runtime.Gosched() // woken goroutines can post their next operations
		}
		o.lockPass()
		o.state = ownerRuns
	}
	return sleepy, err
}

// park is the part of waitShared that waits while another goroutine owns the progress. The caller
// holds the lock; park releases it.
func (r Request) park(ctx context.Context, take bool) (Message, bool, error) {
	w := r.t
	o := &w.owner
	x := waiterPool.Get().(*waiter)
	x.id, x.consume = r.id, take
	o.enqueue(&w.slab, x, placeQueue)
	w.polling.checkSoon()
	// Spinning helps only while the owner runs in parallel.
	spin := o.cores > 1 && o.state == ownerRuns && o.waking.Load() == 0
	w.unlockShared()
	ctxEnded := x.await(ctx, spin)
	if !ctxEnded && x.cause == causeDone {
		o.waking.Add(-1)
		return x.end()
	}
	var cause error
	if ctxEnded {
		cause = context.Cause(ctx) // before x is read: both may have ended
	}
	o.lockPass()
	if ctxEnded {
		if x.cause == causeNone {
			o.remove(&w.slab, x)
			w.unlockShared()
			x.free()
			return Message{}, false, cause
		}
		w.unlockShared()
		<-x.sema // its wake-up was already decided
		o.lockPass()
	}
	o.waking.Add(-1)
	if x.cause == causeDone {
		w.unlockShared()
		return x.end()
	}
	x.free()
	if m, ended, err := r.outcome(take); ended {
		w.releaseProgress()
		return m, true, err
	}
	return r.progressUntil(ctx, take)
}

// releaseProgress runs the pending callbacks, transfers the progress ownership and releases the
// lock.
func (w *thread) releaseProgress() {
	if w.callbacks.pending() {
		w.runCallbacks()
	}
	if w.owner.first == nil {
		w.owner.state = ownerNone
	} else {
		w.owner.transfer(&w.slab)
	}
	w.unlockShared()
}

// transfer transfers the progress ownership to the first in the queue. It frees the
// ownership if the queue is empty.
func (o *progressOwner) transfer(b *slab) {
	x := o.first
	if x == nil {
		o.state = ownerNone
		return
	}
	o.remove(b, x)
	x.cause = causeOwner
	o.addToWake(x)
}

// acquireProgress acquires the progress ownership, because the worker closes. It returns false if
// the present owner does not return from a callback within CloseTimeout. The caller
// holds the lock.
func (w *thread) acquireProgress() bool {
	o := &w.owner
	if o.state == ownerNone {
		o.state = ownerRuns
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout)
	defer cancel()
	x := waiterPool.Get().(*waiter)
	x.id, x.consume = 0, false
	o.enqueue(&w.slab, x, placeQueue)
	o.mustTransfer = true
	if o.state == ownerSleeps {
		w.polling.signal()
	}
	w.unlockShared()
	ended := x.await(ctx, false)
	w.owner.lockPass()
	o.mustTransfer = false
	if ended && x.cause == causeNone {
		o.remove(&w.slab, x)
		x.free()
		return false
	}
	if ended { // its wake-up was already decided
		w.unlockShared()
		<-x.sema
		w.owner.lockPass()
	}
	o.waking.Add(-1)
	x.free()
	return true
}

// With ThreadMulti, operations that waited for a connection are sent although no
// goroutine progresses the worker: the transport's async goroutine resumes them. It
// tries to acquire the worker's lock and the progress ownership, and never waits for
// either. With both it acts as the goroutine that progresses, but it receives no
// message and runs no callback of the program. Callbacks that become due meanwhile
// run in the next pass of the program.

const (
	// resumeTurn is how long a turn starts operations. Those started last, and what
	// they put on the wire together, are done within 50 us.
	resumeTurn = 25 * time.Microsecond
	// resumeAgain is the delay until the next turn. While no operation moves, the delay
	// doubles up to resumeRest.
	resumeAgain = 500 * time.Microsecond
	resumeRest  = 16 * time.Millisecond
)

// resumeUnattended resumes the operations that wait on the iface's lanes, for one turn.
// It returns the delay until the next turn; a negative delay means none.
func (wi *workerIface) resumeUnattended() time.Duration {
	w := wi.t
	if !w.owner.mu.TryLock() {
		return resumeAgain
	}
	f, ok := wi.iface.(uct.Unattended)
	if !ok || w.life.closed() {
		w.unlockShared()
		return -1
	}
	if w.owner.state != ownerNone {
		// An owner that polls resumes them. One that sleeps was woken by the transport.
		again := resumeAgain
		if w.owner.state == ownerSleeps || !f.PendingLeft() {
			again = -1
		}
		w.unlockShared()
		return again
	}
	w.owner.state = ownerRuns
	wi.inAsyncTurn = true
	moved, left := f.ResumePending(ucs.Now().Add(resumeTurn))
	wi.inAsyncTurn = false
	due := w.callbacks.pending()
	w.owner.transfer(&w.slab)
	w.unlockShared()
	if due {
		w.polling.signal() // a program that sleeps on EventFD runs them
	}
	switch {
	case !left:
		wi.resumeDelay = 0
		return -1
	case moved > 0:
		wi.resumeDelay = resumeAgain
	default:
		wi.resumeDelay = min(max(2*wi.resumeDelay, resumeAgain), resumeRest)
	}
	return wi.resumeDelay
}
