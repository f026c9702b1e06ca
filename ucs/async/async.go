package async

import (
	"fmt"
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
// Concurrency: all methods may be called from any goroutine. Functions passed to Async.Watch,
// as opposed to Owner.Watch, belong to no worker. They run in the async goroutine and must
// not access state of a worker.
type Async struct {
	period       time.Duration
	openGateWord uint32 // value of Owner.gate while the async goroutine is outside
	sleep        *sleeper
	stats        stats
	done         chan struct{}
	wakeAt       atomic.Int64 // planned time of the next wake-up; 0 while the goroutine is awake
	ownersAdded  atomic.Bool  // owners were added that the goroutine has not seen

	mu     sync.Mutex // guards the fields below; not held while functions run
	owners []*Owner
	closed bool
}

// New creates an Async and starts its goroutine. Call Close to stop it.
func New(c Config) (*Async, error) {
	s, err := newSleeper()
	if err != nil {
		return nil, fmt.Errorf("async: %w", err)
	}
	a := &Async{sleep: s, done: make(chan struct{})}
	a.period = max(c.Period, maxSection)
	if c.Period == 0 {
		a.period = DefaultPeriod
	}
	if plainInside && shmem.RegisterPrivate() != nil {
		a.openGateWord = gateFence
	}
	go a.run()
	return a, nil
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
	for {
		a.mu.Lock()
		a.ownersAdded.Store(false)
		clear(owners)
		owners = append(owners[:0], a.owners...)
		closed := a.closed
		a.mu.Unlock()
		if closed {
			return
		}

		a.wakeAt.Store(0)
		now := ucs.Now()
		a.sleep.run()
		wake := never
		for _, o := range owners {
			wake = min(wake, o.service(now))
		}
		a.sleep.sleep(a.planSleep(wake, owners))
		a.stats.wakeups.Add(1)
	}
}

// planSleep publishes the time of the next wake-up in wakeAt and returns it.
//
// Invariant: no deadline and no new owner is missed. The setter stores Owner.nextTimer or
// ownersAdded, then loads wakeAt. planSleep stores wakeAt, then loads the other two. All
// accesses are sequentially consistent. So the setter wakes the goroutine, or planSleep sees
// the change and returns 0.
func (a *Async) planSleep(wake ucs.Time, owners []*Owner) ucs.Time {
	a.wakeAt.Store(int64(wake))
	if a.ownersAdded.Load() {
		return 0
	}
	for _, o := range owners {
		if ucs.Time(o.nextTimer.Load()) < o.lastNext {
			return 0
		}
	}
	return wake
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
