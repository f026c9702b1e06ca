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
	gateAsync = 1 << 0 // the async goroutine is inside, or is about to read inside
	gateFence = 1 << 1 // no membarrier: the worker itself orders its store and load
)

// sectionTimers bounds the timers that one call of Poll runs.
const sectionTimers = 64

// Owner excludes one worker and the async goroutine from each other. It also holds the
// worker's timers and descriptors.
//
// A goroutine is inside an Owner between Enter and Leave, or in a function that a section
// runs. Methods that must be called inside access state that both sides share.
//
// Concurrency: one goroutine at a time acts as the worker. A worker that several goroutines
// share holds its lock around Enter and Leave. Enter is not reentrant.
type Owner struct {
	inside    atomic.Uint64 // written by the worker: odd while it is inside, changed by every pass
	gate      atomic.Uint32 // written by the async goroutine
	nextTimer atomic.Int64  // earliest deadline of timers, or never; written inside

	a       *Async
	timers  *wheel        // accessed inside
	watches []*ownerWatch // accessed inside
	closed  bool          // Close was called; accessed inside

	outsideFunc func() time.Duration // see SetOutside; accessed inside

	ownerState // accessed by the async goroutine only
}

// NewOwner creates the Owner of a worker. Close it before the worker.
func (a *Async) NewOwner() (*Owner, error) {
	now := ucs.Now()
	o := &Owner{a: a, timers: newWheel(now), ownerState: ownerState{outsideAt: never}}
	o.nextTimer.Store(int64(never))
	o.gate.Store(a.openGateWord)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return nil, fmt.Errorf("new owner: %w", ucs.ErrClosed)
	}
	a.owners = append(a.owners, o)
	a.ownersAdded.Store(true)
	return o, nil
}

// Enter enters the Owner. It returns false if the async goroutine is inside. In that case
// the caller must not access shared state and must not call Leave. Enter never waits.
//
//hot:bench BenchmarkEnterLeave
func (o *Owner) Enter() bool {
	// The processor may reorder this store and the load below. The barrier that the async
	// goroutine issues between its store to gate and its load of inside prevents that.
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
		o.inside.Swap(count) // a full fence, unlike the store in Enter
	}
	if o.gate.Load()&gateAsync == 0 {
		return true
	}
	o.Leave()
	runtime.Gosched() // with one processor the section could not end otherwise
	return false
}

// Leave leaves the Owner. The async goroutine then sees all writes made inside.
//
//hot:bench BenchmarkEnterLeave
func (o *Owner) Leave() { stepOut(&o.inside) }

// enterYields bounds the wait of EnterYield. A section lasts at most 50 us if its goroutine is
// not preempted and does not allocate. Each try yields.
const enterYields = 1000

// EnterYield is like Enter, but yields until the section has ended. It returns false if that
// takes longer than a section should. Call it after Enter has returned false.
//
//go:noinline
func (o *Owner) EnterYield() bool {
	for range enterYields {
		if o.Enter() {
			return true
		}
	}
	return false
}

// EnterWait is like Enter, but yields until the section has ended, which takes at most
// 50 us. It is for cold paths.
func (o *Owner) EnterWait() {
	for !o.Enter() {
		runtime.Gosched()
	}
}

// At sets a timer. fn runs inside, at or after when, and within a tick (16 us) in the
// worker's next Poll. It must be called inside. fn may set and cancel timers.
func (o *Owner) At(when ucs.Time, fn func(now ucs.Time)) Timer {
	t := o.timers.set(when, fn)
	o.publish()
	return t
}

// After is like At, with a duration from now.
func (o *Owner) After(d time.Duration, fn func(now ucs.Time)) Timer {
	return o.At(ucs.Now().Add(d), fn)
}

// Cancel cancels a timer, whose function then does not run. It returns false if the timer
// has run or was never set. It must be called inside.
func (o *Owner) Cancel(t Timer) bool {
	ok := o.timers.cancel(t)
	o.publish()
	return ok
}

// publish stores the earliest deadline in nextTimer. It wakes the async goroutine if that would
// wake too late.
func (o *Owner) publish() {
	next := int64(o.timers.next())
	if next == o.nextTimer.Load() {
		return
	}
	o.nextTimer.Store(next) // pairs with the second load in Async.planSleep
	if ucs.Time(next) != never && int64(ucs.Time(next).Add(o.a.period)) < o.a.wakeAt.Load() {
		o.a.sleep.wakeUp()
	}
}

// Next returns the time before which Poll has nothing to do; the largest Time if no timer is
// set. It may be called from any goroutine.
func (o *Owner) Next() ucs.Time { return ucs.Time(o.nextTimer.Load()) }

// Poll runs the expired timers and returns their number. It must be called inside, by the
// worker's Progress. If no timer has expired, it costs one load and one comparison.
//
//hot:bench BenchmarkEnterLeave
func (o *Owner) Poll(now ucs.Time) int {
	if int64(now) < o.nextTimer.Load() {
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

// ownerWatch is a descriptor of an owner. It reports readiness once, then again after rearm.
type ownerWatch struct {
	fd      int // -1: a function of CallInside
	fn      func()
	removed bool         // Unwatch was called; accessed inside
	wanted  *atomic.Bool // the condition of CallInside; nil: a descriptor of Watch
}

// Watch calls fn inside, when fd is readable or hung up and the worker has been outside for
// a period since. fn must consume the event unless the worker has done so, or call
// Unwatch. Watch must be called inside. The caller keeps fd and must call Unwatch before
// closing it.
//
// Errors: ucs.ErrUnsupported on systems without epoll; otherwise the system's errors.
func (o *Owner) Watch(fd int, fn func()) error {
	w := &ownerWatch{fd: fd, fn: fn}
	err := o.a.watch(fd, shmem.EventIn|shmem.EventRDHup|shmem.EventOneShot, func() { o.noteReady(w) })
	if err == nil {
		o.watches = append(o.watches, w)
	}
	return err
}

// CallInside runs fn inside once the worker has been outside for a period. It runs fn again after
// each period while wanted is true. fn or the worker clears wanted. CallInside may only be called
// by functions that Async.Watch runs. Those are outside the Owner and must not wait to
// enter it.
func (o *Owner) CallInside(wanted *atomic.Bool, fn func()) {
	o.noteReady(&ownerWatch{fd: -1, fn: fn, wanted: wanted})
}

// Unwatch stops watching fd, whose function does not run afterwards. It must be called
// inside.
func (o *Owner) Unwatch(fd int) error {
	i := slices.IndexFunc(o.watches, func(w *ownerWatch) bool { return w.fd == fd })
	if i < 0 {
		return fmt.Errorf("unwatch descriptor %d: %w", fd, ucs.ErrInvalid)
	}
	o.watches[i].removed = true
	o.watches = slices.Delete(o.watches, i, i+1)
	err := o.a.Unwatch(fd)
	if errors.Is(err, ucs.ErrClosed) { // the Async was closed before
		return nil
	}
	return err
}

// SetOutside sets the function that CallOutside requests. fn runs in the async goroutine,
// outside. It may act as the worker if it excludes the worker's other goroutines by itself.
// It must not block. It returns the delay until its next call; a negative delay means none
// before the next CallOutside. SetOutside must be called inside, at most once.
//
// A call may be in progress when Close returns, so fn must check by itself whether
// its worker is closed.
func (o *Owner) SetOutside(fn func() time.Duration) { o.outsideFunc = fn }

// CallOutside requests a call of the function of SetOutside after the current section. Only
// functions that a section runs may call it.
func (o *Owner) CallOutside() { o.outsideAt = 0 }

// Close closes the Owner. No function of a timer or descriptor runs afterwards. It must not
// be called inside. It is idempotent.
func (o *Owner) Close() error {
	o.EnterWait()
	defer o.Leave()
	if o.closed {
		return nil
	}
	o.closed = true
	o.nextTimer.Store(int64(never))
	o.a.mu.Lock()
	o.a.owners = slices.DeleteFunc(o.a.owners, func(other *Owner) bool { return other == o })
	o.a.mu.Unlock()
	var errs []error
	for len(o.watches) > 0 {
		errs = append(errs, o.Unwatch(o.watches[0].fd))
	}
	return errors.Join(errs...)
}
