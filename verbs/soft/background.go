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

// pollPeriod is the time without a poll after which the background goroutine runs the
// engine. Expired timers are served within two periods.
const pollPeriod = 500 * time.Microsecond

// background is the state of the goroutine that runs the engine while the program does
// not.
//
// While the program polls, the goroutine only checks once a period whether it still
// does. Rest ends that wait at once. When the program does not poll and no work is
// left, the goroutine sleeps. An arriving packet or a new work request wakes it.
//
// Invariant: no work is lost between the last check and the sleep. sleep stores asleep
// and then loads the work queues. A producer stores its work and then loads asleep
// (wake). One of the two must see the other's store, which needs a full barrier between
// store and load on both sides. The producer has none on its fast path. So sleep issues
// a barrier for all threads of the process (shmem.PrivateBarrier) between its store and
// its loads.
type background struct {
	lastPasses uint32        // engine.passes at the last check
	sleeping   atomic.Uint32 // 1: a producer of work must call wakeSlow
	idlePasses atomic.Uint32 // engine.passes at the last call of Rest
	wakeups    chan struct{} // sent to by Rest, and by wakeSlow without a poller
	poller     *udp.Poller   // of UDP devices only
	stop       atomic.Bool
	done       chan struct{}
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
				if k%clockEvery == 0 {
					d.tick(d.clock())
				}
				if d.progress() == 0 {
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
	b.sleeping.Store(1)
	d.wakeSlow()
	<-b.done
	b.done = nil
	b.stop.Store(false) // for SetPort, which starts it again
	b.sleeping.Store(0)
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
	for !b.stop.Load() {
		// Run the engine until no work is left. If the link stays full, sleep for one period.
		for k, got := 0, 1; got > 0 && k < maxDrain; k++ {
			got = d.progress()
		}
		d.tick(d.clock())
		for k := 0; d.numDirty.Load() != 0; k++ {
			if k == dirtyRetries {
				time.Sleep(pollPeriod)
				break
			}
			runtime.Gosched()
			d.tick(d.clock())
			d.progress()
		}
		for polls := true; polls && !b.stop.Load(); {
			polls = d.waitWhilePolled(timer)
		}
		d.sleep(timer)
	}
}

// dirtyRetries is how often the loop retries queue pairs in engine.dirty before it sleeps.
const dirtyRetries = 64

// waitWhilePolled reports whether the program has polled since the last check. If it has, polled
// first waits for one period, or until Rest is called.
func (d *device) waitWhilePolled(timer *time.Timer) bool {
	b := &d.background
	n := d.passes.Load()
	if n == b.lastPasses {
		return false
	}
	b.lastPasses = n
	d.tick(d.clock()) // a program that polls seldom would let timers expire late
	timer.Reset(pollPeriod)
	select {
	case <-timer.C:
		return true
	case <-b.wakeups:
		b.lastPasses = b.idlePasses.Load()
		return d.passes.Load() != b.lastPasses
	}
}

// NotifyIdle reports that the caller stops polling. The background goroutine then takes over
// without waiting for a period, unless another worker polls the device.
func (d *device) NotifyIdle() {
	b := &d.background
	if b.sleeping.Load() != 0 {
		return
	}
	b.idlePasses.Store(d.passes.Load())
	select {
	case b.wakeups <- struct{}{}:
	default:
	}
}

// hasWork reports whether packets wait to be sent or received.
func (d *device) hasWork() bool {
	return d.numDirty.Load() != 0 || d.link.hasPackets()
}

// sleep blocks until work arrives or the first timer expires. The doc comment of
// background has the store order that it relies on.
func (d *device) sleep(timer *time.Timer) {
	b := &d.background
	if d.hasWork() { // the goroutine that owns this work may need the processor
		runtime.Gosched()
		return
	}
	until := d.nextDeadline()
	if b.poller != nil {
		if b.poller.Arm(d.sleepTime(until)) != nil { // the system has no memory for it: retry after a period
			time.Sleep(pollPeriod)
			return
		}
		defer b.poller.Disarm()
	}
	b.sleeping.Store(1)
	defer b.sleeping.Store(0)
	switch {
	case shmem.PrivateBarrier() != nil:
		time.Sleep(pollPeriod)
	case d.hasWork(), b.stop.Load(), d.nextDeadline() < until:
	case b.poller != nil:
		b.poller.Wait()
	case until == never:
		<-b.wakeups
	default:
		timer.Reset(d.sleepTime(until))
		select {
		case <-timer.C:
		case <-b.wakeups:
		}
	}
}

// nextDeadline returns the time of the first timer or delayed packet, or never.
func (d *device) nextDeadline() ucs.Time {
	first := never
	if d.numTimed.Load() != 0 {
		first = ucs.Time(d.nextTimer.Load())
	}
	if d.faults != nil {
		first = min(first, d.faults.nextDeadline())
	}
	return first
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

// wake wakes the background goroutine if it sleeps.
func (d *device) wake() {
	if d.background.sleeping.Load() != 0 {
		d.wakeSlow()
	}
}

//go:noinline
func (d *device) wakeSlow() {
	b := &d.background
	if !b.sleeping.CompareAndSwap(1, 0) {
		return
	}
	if b.poller != nil {
		b.poller.Wake()
		return
	}
	select {
	case b.wakeups <- struct{}{}:
	default:
	}
}
