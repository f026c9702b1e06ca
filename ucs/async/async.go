package async

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// DefaultPeriod is how long a worker must have stood still before the async
// goroutine acts in its stead; two of them make the promised millisecond.
const DefaultPeriod = 500 * time.Microsecond

// Config of an Async; the zero value is the default.
type Config struct {
	// Period a worker must have stood still for; 0: DefaultPeriod. Shorter
	// than 50 us is raised to that.
	Period time.Duration
}

// Stats counts what the async goroutine did.
type Stats struct {
	Wakeups  uint64 // times it woke
	Sections uint64 // times it acted in a worker's stead
	Refused  uint64 // times a worker came back just then
	Overruns uint64 // sections longer than 50 us
}

type stats struct{ wakeups, sections, refused, overruns atomic.Uint64 }

// Async is the async goroutine of a context.
//
// Concurrency: all methods from any goroutine. Functions given to its own At,
// After and Watch (as opposed to an Owner's) belong to no worker: they run one
// at a time, in the goroutine or in some worker's Poll, and must not touch what
// belongs to a worker.
type Async struct {
	period   time.Duration
	openGate uint32 // what Owner.gate holds while the async side is not inside
	sleep    *sleeper
	stats    stats
	done     chan struct{}
	wakeAt   atomic.Int64 // when the goroutine means to wake; 0 while it is awake
	next     atomic.Int64 // when timers are due
	joined   atomic.Bool  // there are owners that the goroutine does not know yet

	one sync.Mutex // held while a function that belongs to no worker runs; before mu

	mu     sync.Mutex // guards all below; no function runs under it
	owners []*Owner
	timers *wheel
	closed bool
}

// New starts the goroutine. Close it.
func New(c Config) (*Async, error) {
	s, err := newSleeper()
	if err != nil {
		return nil, fmt.Errorf("async: %w", err)
	}
	a := &Async{sleep: s, done: make(chan struct{}), timers: newWheel(ucs.Now())}
	a.period = max(c.Period, maxSection)
	if c.Period == 0 {
		a.period = DefaultPeriod
	}
	if plainInside && shmem.RegisterPrivate() != nil {
		a.openGate = gateFence
	}
	a.next.Store(int64(never))
	go a.run()
	return a, nil
}

// Bound is how late a due timer or event may be served at worst when the
// program does not poll: two periods if a processor is free for the goroutine,
// else, with GOMAXPROCS=1 beside a computing goroutine, what Go's scheduler
// takes to preempt that.
func (a *Async) Bound() time.Duration {
	if runtime.GOMAXPROCS(0) == 1 {
		return 20 * time.Millisecond
	}
	return 2 * a.period
}

// Stats is a snapshot of the counters.
func (a *Async) Stats() Stats {
	return Stats{
		Wakeups: a.stats.wakeups.Load(), Sections: a.stats.sections.Load(),
		Refused: a.stats.refused.Load(), Overruns: a.stats.overruns.Load(),
	}
}

// Close ends the goroutine and waits for it; no function given to Async or to
// its Owners runs in it afterwards. Owners keep excluding and polling for their
// worker. Idempotent. Not from a function that the goroutine runs.
func (a *Async) Close() error {
	a.mu.Lock()
	first := !a.closed
	a.closed = true
	a.mu.Unlock()
	if !first {
		<-a.done
		return nil
	}
	a.sleep.kick()
	<-a.done
	return a.sleep.close()
}

// run is the goroutine.
func (a *Async) run() {
	defer close(a.done)
	var owners []*Owner
	for a.snapshot(&owners) {
		a.wakeAt.Store(0)
		now := ucs.Now()
		a.one.Lock()
		a.sleep.run()
		a.runTimers(now)
		a.one.Unlock()
		wake := never
		for _, o := range owners {
			wake = min(wake, o.serve(now))
		}
		a.sleep.until(a.plan(wake, owners))
		a.stats.wakeups.Add(1)
	}
}

// snapshot copies the list of owners; false once closed.
func (a *Async) snapshot(owners *[]*Owner) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.joined.Store(false)
	clear(*owners)
	*owners = append((*owners)[:0], a.owners...)
	return !a.closed
}

// plan publishes when the goroutine means to wake, and looks once more for
// deadlines that were set, and owners that were made, before anyone could see
// that: each side stores its word, then loads the other's, both sequentially
// consistent.
func (a *Async) plan(wake ucs.Time, owners []*Owner) ucs.Time {
	wake = min(wake, ucs.Time(a.next.Load()))
	a.wakeAt.Store(int64(wake))
	if ucs.Time(a.next.Load()) < wake || a.joined.Load() {
		return 0
	}
	for _, o := range owners {
		if ucs.Time(o.next.Load()) < o.seenDue {
			return 0
		}
	}
	return wake
}

// wakeBefore wakes the goroutine if it means to sleep until after due.
func (a *Async) wakeBefore(due ucs.Time) {
	if int64(due) < a.wakeAt.Load() {
		a.sleep.kick()
	}
}

// At sets a timer: fn runs once, not before when.
func (a *Async) At(when ucs.Time, fn func(now ucs.Time)) Timer {
	a.mu.Lock()
	t := a.timers.set(when, fn)
	next := a.timers.next()
	a.next.Store(int64(next))
	a.mu.Unlock()
	a.wakeBefore(next)
	return t
}

// After is At for a span from now.
func (a *Async) After(d time.Duration, fn func(now ucs.Time)) Timer {
	return a.At(ucs.Now().Add(d), fn)
}

// Cancel forgets a timer; false if it was never set or its function has begun
// (and may still run).
func (a *Async) Cancel(t Timer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.timers.cancel(t)
	a.next.Store(int64(a.timers.next()))
	return ok
}

// Poll runs the timers due at now that belong to no worker, and returns how
// many ran; for a worker's Progress. Cost: one load and a compare when none is
// due. It does not wait for another goroutine that is at it.
//
// hot: BenchmarkEnterLeave
func (a *Async) Poll(now ucs.Time) int {
	if int64(now) < a.next.Load() {
		return 0
	}
	return a.pollSlow(now)
}

//go:noinline
func (a *Async) pollSlow(now ucs.Time) int {
	if !a.one.TryLock() {
		return 0
	}
	defer a.one.Unlock()
	return a.runTimers(now)
}

// runTimers wants one held.
func (a *Async) runTimers(now ucs.Time) int {
	for n := 0; ; n++ {
		a.mu.Lock()
		fn := a.timers.pop(now)
		a.next.Store(int64(a.timers.next()))
		a.mu.Unlock()
		if fn == nil {
			return n
		}
		fn(now)
	}
}

// Watch calls fn in the goroutine whenever fd is readable or hung up. fn must
// consume what made fd ready or Unwatch it. fd stays the caller's; Unwatch
// before closing it.
//
// Errors: ucs.ErrUnsupported where the system has no epoll; else the system's.
func (a *Async) Watch(fd int, fn func()) error {
	return a.watch(fd, shmem.EventIn|shmem.EventRDHup, fn)
}

// Unwatch forgets fd. A function that has begun may still run.
func (a *Async) Unwatch(fd int) error {
	if a.sleep.set == nil {
		return fmt.Errorf("unwatch descriptor %d: %w", fd, ucs.ErrUnsupported)
	}
	return a.sleep.set.del(fd)
}

func (a *Async) watch(fd int, events uint32, fn func()) error {
	if a.sleep.set == nil {
		return fmt.Errorf("watch descriptor %d: %w", fd, ucs.ErrUnsupported)
	}
	return a.sleep.set.add(fd, events, fn)
}

func (a *Async) forget(o *Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.owners, o); i >= 0 {
		a.owners = slices.Delete(a.owners, i, i+1)
	}
}
