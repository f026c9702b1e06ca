package soft

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
)

// pollPeriod is the time without a poll after which the background goroutine runs an
// engine. Expired timers are served within two periods.
const pollPeriod = 500 * time.Microsecond

// background is the state of the goroutine that runs the engines which the program does
// not poll.
//
// An engine is polled if its pass counter moved during the last period, unless NotifyIdle ends
// that at once. Of a polled engine the goroutine only serves the timers, once a period. It runs
// the others until no work is left. Then it sleeps: for a period while any engine is polled, or
// else until something happens. An arriving packet or a new work request wakes it, if it is for
// an engine that is not polled.
//
// Invariant: no work is lost between the last check and the sleep. sleep stores
// engine.sleeping and then loads the work queues of the engine. A producer stores its work and
// then loads sleeping (wake). One of the two must see the other's store, which needs a full
// barrier between store and load on both sides. The producer has none on its fast path. So sleep
// issues a barrier for all threads of the process (shmem.PrivateBarrier) between its store and
// its loads, but only if it changed a word: the words of engines without work stay set while
// others are polled.
type background struct {
	wakeups chan struct{} // sent to by NotifyIdle and wakeSlow
	poller  *udp.Poller   // of UDP devices only
	stop    atomic.Bool
	done    chan struct{}
}

// startBackground starts the goroutine that the engine mode requires, if any.
func (d *device) startBackground() error {
	b := &d.background
	if d.conf.Fabric != nil || d.conf.Engine == EngineInline {
		return nil
	}
	b.wakeups, b.done = make(chan struct{}, 1), make(chan struct{})
	if d.conf.Engine == EngineThread {
		go func() { // it never sleeps
			runtime.LockOSThread()
			defer close(b.done)
			for k := uint32(0); !b.stop.Load(); k++ {
				got := 0
				for _, e := range *d.engines.Load() {
					if k%clockEvery == 0 {
						e.tick(d.clock())
					}
					got += e.progress()
				}
				if got == 0 {
					cpu.Pause()
				}
				if k%yieldEvery == 0 {
					runtime.Gosched() // lets the program run where it has no other processor
				}
			}
		}()
		return nil
	}
	if d.kind == overUDP {
		var err error
		if b.poller, err = udp.NewPoller(d.sockets); err != nil {
			b.done = nil
			return err
		}
	}
	go d.backgroundLoop()
	return nil
}

// stopBackground stops the goroutine and waits for its end.
func (d *device) stopBackground() error {
	b := &d.background
	if b.done == nil {
		return nil
	}
	b.stop.Store(true)
	d.wakeBackground()
	<-b.done
	b.done = nil
	b.stop.Store(false) // for SetPort, which starts it again
	for _, e := range *d.engines.Load() {
		e.sleeping.Store(0)
	}
	if b.poller == nil { // an in-process device, which a peer may be waking: that reads the field
		return nil
	}
	poller := b.poller
	b.poller = nil
	return poller.Close()
}

// yieldEvery is how many passes the thread makes between two calls of Gosched.
const yieldEvery = 1024

// backgroundLoop is the goroutine of EngineBackground.
func (d *device) backgroundLoop() {
	b := &d.background
	defer close(b.done)
	timer := time.NewTimer(pollPeriod)
	defer timer.Stop()
	for polled := false; !b.stop.Load(); {
		engines := d.engines.Load()
		for _, e := range *engines {
			if !e.polled { // as of the last check: what woke the goroutine is for these
				e.runAll(!polled || d.kind == overInproc)
			}
		}
		polled = false
		for _, e := range *engines {
			if e.isPolled(d.clock()) {
				polled = true
				e.sleeping.Store(0)
				e.tick(d.clock()) // a program that polls seldom would let timers expire late
			}
		}
		d.sleep(engines, polled, timer)
	}
}

// isPolled reports whether the program polls the engine, and records it in polled.
func (e *engine) isPolled(now ucs.Time) bool {
	n := e.passes.Load()
	if n != e.lastPasses {
		e.lastPasses, e.polledUntil = n, now.Add(pollPeriod)
	}
	e.polled = n != e.idlePasses.Load() && now < e.polledUntil
	return e.polled
}

// runAll runs the engine until no work is left. If the link stays full, it sleeps for one period.
// Packets that are for the whole device are left to the engines that are polled, if there are any:
// receives is false then.
func (e *engine) runAll(receives bool) {
	for k, got := 0, 1; got > 0 && k < maxDrain; k++ {
		got = e.progressAs(receives)
	}
	e.tick(e.d.clock())
	for k := 0; e.numDirty.Load() != 0; k++ {
		if k == dirtyRetries {
			time.Sleep(pollPeriod)
			break
		}
		runtime.Gosched()
		e.tick(e.d.clock())
		e.progressAs(receives)
	}
}

// progressAs is progress, or sends only.
func (e *engine) progressAs(receives bool) int {
	if receives {
		return e.progress()
	}
	if e.numDirty.Load() != 0 {
		e.flushDirty()
	}
	return 0
}

// dirtyRetries is how often runAll retries queue pairs in engine.dirty before it sleeps.
const dirtyRetries = 64

// NotifyIdle reports that the caller stops polling. The background goroutine then takes over
// without waiting for a period, unless another worker polls the same engine.
func (d *device) NotifyIdle() {
	notify := false
	for _, e := range *d.engines.Load() {
		if e.sleeping.Load() == 0 {
			e.idlePasses.Store(e.passes.Load())
			notify = true
		}
	}
	if notify {
		d.background.wakeUp()
	}
}

// hasWork reports whether packets wait to be sent or received by the engine.
func (e *engine) hasWork() bool {
	return e.numDirty.Load() != 0 || e.inbox.max != 0 && e.inbox.ready()
}

// workLeft reports whether an engine that is not polled has work, and when the next timer expires
// that the background goroutine serves, or never.
func (d *device) workLeft(engines []*engine, polled bool) (work bool, until ucs.Time) {
	until = never
	for _, e := range engines {
		if !e.polled {
			work = work || e.hasWork()
			if e.numTimed.Load() != 0 {
				until = min(until, ucs.Time(e.nextTimer.Load()))
			}
		}
	}
	if !polled {
		work = work || d.link.hasPackets()
		if d.faults != nil {
			until = min(until, d.faults.nextDeadline())
		}
	}
	return work, until
}

// sleep blocks until work arrives or the first timer expires, for at most one period while an
// engine is polled. The doc comment of background has the store order that it relies on.
func (d *device) sleep(engines *[]*engine, polled bool, timer *time.Timer) {
	b := &d.background
	work, until := d.workLeft(*engines, polled)
	if work { // the goroutine that owns this work may need the processor
		runtime.Gosched()
		return
	}
	inPoller := b.poller != nil && !polled
	if inPoller {
		if b.poller.Arm(d.sleepTime(until)) != nil { // the system has no memory for it: retry after a period
			time.Sleep(pollPeriod)
			return
		}
		defer b.poller.Disarm()
	}
	changed := false
	for _, e := range *engines {
		if !e.polled && e.sleeping.Load() == 0 {
			e.sleeping.Store(1)
			changed = true
		}
	}
	if changed && shmem.PrivateBarrier() != nil {
		for _, e := range *engines {
			e.sleeping.Store(0)
		}
		time.Sleep(pollPeriod)
		return
	}
	work, first := d.workLeft(*engines, polled)
	limit := d.sleepTime(until)
	switch {
	case work, b.stop.Load(), first < until, d.engines.Load() != engines:
		return
	case inPoller:
		b.poller.Wait()
		return
	case polled && (limit < 0 || limit > pollPeriod):
		limit = pollPeriod
	case limit < 0:
		<-b.wakeups
		return
	}
	timer.Reset(limit)
	select {
	case <-timer.C:
	case <-b.wakeups:
	}
}

// sleepTime returns the time from now until then, at least minSleep. It returns -1 for
// never.
func (d *device) sleepTime(until ucs.Time) time.Duration {
	if until == never {
		return -1
	}
	return max(until.Sub(d.clock()), minSleep)
}

// minSleep is the shortest sleep.
const minSleep = 10 * time.Microsecond

// wake wakes the background goroutine if it sleeps and the engine is not polled.
func (e *engine) wake() {
	if e.sleeping.Load() != 0 {
		e.wakeSlow()
	}
}

//go:noinline
func (e *engine) wakeSlow() {
	if e.sleeping.CompareAndSwap(1, 0) {
		e.d.wakeBackground()
	}
}

// wake wakes the background goroutine for packets that are for the whole device, if it sleeps
// and no engine is polled.
func (d *device) wake() {
	for _, e := range *d.engines.Load() {
		if e.sleeping.Load() == 0 {
			return
		}
	}
	d.own.wakeSlow()
}

// wakeBackground wakes the background goroutine, or ends its next sleep.
func (d *device) wakeBackground() {
	b := &d.background
	b.wakeUp()
	if b.poller != nil {
		b.poller.Wake()
	}
}

func (b *background) wakeUp() {
	select {
	case b.wakeups <- struct{}{}:
	default:
	}
}
