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

// DefaultPeriod is the time without a pass of the worker after which the async goroutine
// runs a section. Two periods make the promised latency of one millisecond.
const DefaultPeriod = 500 * time.Microsecond

// Config is the configuration of an Async; the zero value is the default.
type Config struct {
	// Period is the time without a pass of the worker before a section; 0: DefaultPeriod.
	// Values below 50 us are raised to 50 us.
	Period time.Duration
}

// Stats are counters of the async goroutine.
type Stats struct {
	Wakeups  uint64 // times that it woke up
	Sections uint64 // sections that it ran
	Skipped  uint64 // sections that it skipped, since the worker entered
	Overruns uint64 // sections longer than 50 us
}

type stats struct{ wakeups, sections, skipped, overruns atomic.Uint64 }

// Async is the async goroutine of a context.
//
// Concurrency: all methods may be called from any goroutine. Functions passed to Async's At,
// After and Watch, as opposed to those of Owner, belong to no worker. They run one at a
// time, in the async goroutine or in Poll of any worker. They must not access state of a
// worker.
type Async struct {
	period       time.Duration
	openGateWord uint32 // value of Owner.gate while the async goroutine is outside
	sleep        *sleeper
	stats        stats
	done         chan struct{}
	wakeAt       atomic.Int64 // planned time of the next wake-up; 0 while the goroutine is awake
	nextTimer    atomic.Int64 // earliest deadline of timers
	ownersAdded  atomic.Bool  // owners were added that the goroutine has not seen

	callMu sync.Mutex // held while a function that belongs to no worker runs; locked before mu

	mu     sync.Mutex // guards the fields below; not held while functions run
	owners []*Owner
	timers *wheel
	closed bool
}

// New creates an Async and starts its goroutine. Call Close to stop it.
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
		a.openGateWord = gateFence
	}
	a.nextTimer.Store(int64(never))
	go a.run()
	return a, nil
}

// Bound returns the longest delay of an expired timer or event when the program does not
// poll. It is two periods if a processor is free for the goroutine. With GOMAXPROCS=1 beside
// a computing goroutine, it is the time until Go's scheduler preempts that goroutine.
func (a *Async) Bound() time.Duration {
	if runtime.GOMAXPROCS(0) == 1 {
		return 20 * time.Millisecond
	}
	return 2 * a.period
}

// Stats returns a snapshot of the counters.
func (a *Async) Stats() Stats {
	return Stats{
		Wakeups: a.stats.wakeups.Load(), Sections: a.stats.sections.Load(),
		Skipped: a.stats.skipped.Load(), Overruns: a.stats.overruns.Load(),
	}
}

// Close stops the goroutine and waits for it. No function registered with the Async or its
// Owners runs in it afterwards. Owners still exclude and poll for their workers. Close is
// idempotent. It must not be called by a function that the goroutine runs.
func (a *Async) Close() error {
	a.mu.Lock()
	first := !a.closed
	a.closed = true
	a.mu.Unlock()
	if !first {
		<-a.done
		return nil
	}
	a.sleep.wakeUp()
	<-a.done
	return a.sleep.close()
}

// run is the async goroutine.
func (a *Async) run() {
	defer close(a.done)
	var owners []*Owner
	for a.snapshot(&owners) {
		a.wakeAt.Store(0)
		now := ucs.Now()
		a.callMu.Lock()
		a.sleep.run()
		a.runTimers(now)
		a.callMu.Unlock()
		wake := never
		for _, o := range owners {
			wake = min(wake, o.service(now))
		}
		a.sleep.sleep(a.planSleep(wake, owners))
		a.stats.wakeups.Add(1)
	}
}

// snapshot copies the list of owners. It returns false if the Async is closed.
func (a *Async) snapshot(owners *[]*Owner) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ownersAdded.Store(false)
	clear(*owners)
	*owners = append((*owners)[:0], a.owners...)
	return !a.closed
}

// planSleep publishes the time of the next wake-up in wakeAt and returns it.
//
// Invariant: no deadline and no new owner is missed. The setter stores next or joined, then
// loads wakeAt. plan stores wakeAt, then loads next and joined. All accesses are
// sequentially consistent, so the setter wakes the goroutine, or plan sees the change and
// returns 0.
func (a *Async) planSleep(wake ucs.Time, owners []*Owner) ucs.Time {
	wake = min(wake, ucs.Time(a.nextTimer.Load()))
	a.wakeAt.Store(int64(wake))
	if ucs.Time(a.nextTimer.Load()) < wake || a.ownersAdded.Load() {
		return 0
	}
	for _, o := range owners {
		if ucs.Time(o.nextTimer.Load()) < o.lastNext {
			return 0
		}
	}
	return wake
}

// wakeBefore wakes the goroutine if its planned wake-up is later than due.
func (a *Async) wakeBefore(due ucs.Time) {
	if int64(due) < a.wakeAt.Load() {
		a.sleep.wakeUp()
	}
}

// At sets a timer. fn runs once, at or after when.
func (a *Async) At(when ucs.Time, fn func(now ucs.Time)) Timer {
	a.mu.Lock()
	t := a.timers.set(when, fn)
	next := a.timers.next()
	a.nextTimer.Store(int64(next))
	a.mu.Unlock()
	a.wakeBefore(next)
	return t
}

// After is like At, with a duration from now.
func (a *Async) After(d time.Duration, fn func(now ucs.Time)) Timer {
	return a.At(ucs.Now().Add(d), fn)
}

// Cancel cancels a timer. It returns false if the timer was never set or its function has
// started. In that case the function may still be running.
func (a *Async) Cancel(t Timer) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	ok := a.timers.cancel(t)
	a.nextTimer.Store(int64(a.timers.next()))
	return ok
}

// Poll runs the expired timers that belong to no worker and returns their number. Workers
// call it in Progress. If no timer has expired, it costs one load and one comparison. It
// does not wait while another goroutine runs such timers.
//
//hot:bench BenchmarkEnterLeave
func (a *Async) Poll(now ucs.Time) int {
	if int64(now) < a.nextTimer.Load() {
		return 0
	}
	return a.pollSlow(now)
}

//go:noinline
func (a *Async) pollSlow(now ucs.Time) int {
	if !a.callMu.TryLock() {
		return 0
	}
	defer a.callMu.Unlock()
	return a.runTimers(now)
}

// runTimers runs all expired timers. The caller holds one.
func (a *Async) runTimers(now ucs.Time) int {
	for n := 0; ; n++ {
		a.mu.Lock()
		fn := a.timers.pop(now)
		a.nextTimer.Store(int64(a.timers.next()))
		a.mu.Unlock()
		if fn == nil {
			return n
		}
		fn(now)
	}
}

// Watch calls fn in the async goroutine whenever fd is readable or hung up. fn must consume
// the event or call Unwatch. The caller keeps fd and must call Unwatch before closing it.
//
// Errors: ucs.ErrUnsupported on systems without epoll; otherwise the system's errors.
func (a *Async) Watch(fd int, fn func()) error {
	return a.watch(fd, shmem.EventIn|shmem.EventRDHup, fn)
}

// Unwatch stops watching fd. A function that has started may still be running.
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

func (a *Async) removeOwner(o *Owner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.owners, o); i >= 0 {
		a.owners = slices.Delete(a.owners, i, i+1)
	}
}
