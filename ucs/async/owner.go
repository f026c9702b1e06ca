package async

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// Bits of Owner.gate.
const (
	gateAsync = 1 << 0 // the async side is inside, or about to look
	gateFence = 1 << 1 // no membarrier: the worker itself must order store and load
)

// sectionTimers bounds the timers that one section runs.
const sectionTimers = 64

// Owner is the exclusion between one worker and the async goroutine, with the
// timers and descriptors that belong to the worker.
//
// Concurrency: one goroutine at a time acts as the worker (workers that are
// shared hold their lock around Enter and Leave). "Inside" means between Enter
// and Leave, or in a function that a section runs; what is said to need it
// touches state that both sides share. Not reentrant: whoever is inside must
// not Enter again.
type Owner struct {
	inside atomic.Uint64 // the worker's: odd inside, moves with every pass
	gate   atomic.Uint32 // the async side's
	next   atomic.Int64  // written inside: when timers are due, never if none

	a      *Async
	timers *wheel     // inside
	events []*watched // inside
	dead   bool       // inside

	outside func() time.Duration // inside: see SetOutside

	view // the async goroutine's
}

// NewOwner makes the exclusion of one worker. Close it before the worker goes.
func (a *Async) NewOwner() (*Owner, error) {
	now := ucs.Now()
	o := &Owner{a: a, timers: newWheel(now), view: view{outsideAt: never}}
	o.next.Store(int64(never))
	o.gate.Store(a.openGate)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fmt.Errorf("new owner: %w", ucs.ErrClosed)
	}
	a.owners = append(a.owners, o)
	a.joined.Store(true)
	return o, nil
}

// Enter goes inside; false, when the async side is there: then nothing may be
// touched, and Leave must not be called. It never waits.
//
// hot: BenchmarkEnterLeave
func (o *Owner) Enter() bool {
	// This store and the load below may pass each other; the barrier that the
	// async side issues between raising the gate and reading inside holds them.
	stepIn(&o.inside)
	return o.gate.Load() == 0 || o.enterSlow()
}

//go:noinline
func (o *Owner) enterSlow() bool {
	count := o.inside.Load()
	if count&1 == 0 {
		panic("async: Enter inside")
	}
	if o.gate.Load()&gateFence != 0 {
		o.inside.Swap(count) // a full fence, which the fast path's store is not
	}
	if o.gate.Load()&gateAsync == 0 {
		return true
	}
	o.Leave()
	runtime.Gosched() // with one processor the section cannot end otherwise
	return false
}

// Leave comes out. What was written inside is visible to the async side then.
//
// hot: BenchmarkEnterLeave
func (o *Owner) Leave() { stepOut(&o.inside) }

// enterTries bounds the wait of EnterSoon for a section, which is 50 us at most where
// the goroutine is not preempted and makes no memory; each try yields.
const enterTries = 1000

// EnterSoon is Enter for who was refused once: it yields until the section is over,
// and is false only where that takes longer than sections do.
//
//go:noinline
func (o *Owner) EnterSoon() bool {
	for range enterTries {
		if o.Enter() {
			return true
		}
	}
	return false
}

// EnterWait is Enter for cold paths: it yields until the section of the async
// side, at most 50 us, is over.
func (o *Owner) EnterWait() {
	for !o.Enter() {
		runtime.Gosched()
	}
}

// At sets a timer: fn runs inside, not before when and within a tick (16 us) of
// the worker's next Poll. Needs to be inside. fn may set and cancel timers.
func (o *Owner) At(when ucs.Time, fn func(now ucs.Time)) Timer {
	t := o.timers.set(when, fn)
	o.publish()
	return t
}

// After is At for a span from now.
func (o *Owner) After(d time.Duration, fn func(now ucs.Time)) Timer {
	return o.At(ucs.Now().Add(d), fn)
}

// Cancel forgets a timer; false if it has run or was never set. After Cancel
// its function does not run. Needs to be inside.
func (o *Owner) Cancel(t Timer) bool {
	ok := o.timers.cancel(t)
	o.publish()
	return ok
}

// publish tells the async goroutine when timers are due, and wakes it if it
// means to sleep longer.
func (o *Owner) publish() {
	next := int64(o.timers.next())
	if next == o.next.Load() {
		return
	}
	o.next.Store(next) // pairs with the second look in Async.plan
	if ucs.Time(next) != never {
		o.a.wakeBefore(ucs.Time(next).Add(o.a.period))
	}
}

// Next is when Poll has something to do at the earliest; the largest Time if no
// timer is set. From any goroutine.
func (o *Owner) Next() ucs.Time { return ucs.Time(o.next.Load()) }

// Poll runs the timers due at now and returns how many ran. Needs to be inside;
// for the worker's Progress. Cost: one load and a compare when none is due.
//
// hot: BenchmarkEnterLeave
func (o *Owner) Poll(now ucs.Time) int {
	if int64(now) < o.next.Load() {
		return 0
	}
	return o.pollSlow(now)
}

//go:noinline
func (o *Owner) pollSlow(now ucs.Time) int {
	n := 0
	for ; n < sectionTimers; n++ {
		fn := o.timers.pop(now)
		if fn == nil {
			break
		}
		fn(now)
	}
	o.publish()
	return n
}

// watched is one descriptor of an owner. It tells the async goroutine once, and
// again after rearm.
type watched struct {
	fd     int // -1: of Soon
	fn     func()
	gone   bool         // inside
	wanted *atomic.Bool // nil: of Watch
}

// due reports whether the function is still to run. Needs to be inside.
func (w *watched) due() bool { return !w.gone && (w.wanted == nil || w.wanted.Load()) }

// Watch calls fn, inside, when fd is readable or hung up and the worker has been
// outside for a period since then. fn must consume what made fd ready, unless the
// worker has, or Unwatch it. Needs to be inside. fd stays the caller's; Unwatch
// before closing it.
//
// Errors: ucs.ErrUnsupported where the system has no epoll; else the system's.
func (o *Owner) Watch(fd int, fn func()) error {
	w := &watched{fd: fd, fn: fn}
	err := o.a.watch(fd, shmem.EventIn|shmem.EventRDHup|shmem.EventOneShot, func() { o.noteReady(w) })
	if err == nil {
		o.events = append(o.events, w)
	}
	return err
}

// Soon runs fn inside when the worker has been outside for a period. It is run again
// after each period while wanted is set, and not at all once wanted is clear: fn clears
// it, or the worker does. Only for functions that Async.Watch runs: they are not inside,
// and must not wait to get there.
func (o *Owner) Soon(wanted *atomic.Bool, fn func()) {
	o.noteReady(&watched{fd: -1, fn: fn, wanted: wanted})
}

// Unwatch forgets fd; its function does not run afterwards. Needs to be inside.
func (o *Owner) Unwatch(fd int) error {
	i := slices.IndexFunc(o.events, func(w *watched) bool { return w.fd == fd })
	if i < 0 {
		return fmt.Errorf("unwatch descriptor %d: %w", fd, ucs.ErrInvalid)
	}
	o.events[i].gone = true
	o.events = slices.Delete(o.events, i, i+1)
	err := o.a.Unwatch(fd)
	if errors.Is(err, ucs.ErrClosed) { // the Async went first
		return nil
	}
	return err
}

// SetOutside sets the function that CallOutside requests. fn runs on the async
// goroutine, outside. It may act as the worker if it excludes the worker's other
// goroutines by itself. It must not block. It returns the delay until its next call;
// a negative delay means none before the next CallOutside. Needs to be inside, once.
//
// A call may be in progress when Close returns, so fn must check by itself whether
// its worker is closed.
func (o *Owner) SetOutside(fn func() time.Duration) { o.outside = fn }

// CallOutside requests a call of SetOutside's function after the current section. Only
// functions that a section runs may call it.
func (o *Owner) CallOutside() { o.outsideAt = 0 }

// Close ends the Owner: no timer and no descriptor's function runs afterwards.
// Must not be called inside. Idempotent.
func (o *Owner) Close() error {
	o.EnterWait()
	defer o.Leave()
	if o.dead {
		return nil
	}
	o.dead = true
	o.next.Store(int64(never))
	o.a.forget(o)
	var errs []error
	for len(o.events) > 0 {
		errs = append(errs, o.Unwatch(o.events[0].fd))
	}
	return errors.Join(errs...)
}
