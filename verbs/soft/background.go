package soft

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
)

// period is the time without a poll after which the background goroutine runs the
// engine. Expired timers are served within two periods.
const period = 500 * time.Microsecond

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
	seen   uint32        // engine.passes at the last check
	asleep atomic.Uint32 // 1: a producer of work must call wakeUp
	rested atomic.Uint32 // engine.passes at the last call of Rest
	wakes  chan struct{} // sent to by Rest, and by wakeUp where there is no bed
	bed    *bed          // of UDP devices only
	stop   atomic.Bool
	ended  chan struct{}
}

// startBackground starts the goroutine that the engine mode requires, if any.
func (d *device) startBackground() error {
	b := &d.back
	if d.kind == overFabric && d.fab.mail == nil || d.conf.Engine == EngineInline {
		return nil
	}
	b.wakes, b.ended = make(chan struct{}, 1), make(chan struct{})
	if d.conf.Engine == EngineThread {
		go d.thread()
		return nil
	}
	if d.kind == overUDP {
		var err error
		if b.bed, err = d.udp.bed(); err != nil {
			b.ended = nil
			return err
		}
	}
	go d.standIn()
	return nil
}

// stopBackground stops the goroutine and waits for its end.
func (d *device) stopBackground() error {
	b := &d.back
	if b.ended == nil {
		return nil
	}
	b.stop.Store(true)
	b.asleep.Store(1)
	d.wakeUp()
	<-b.ended
	if b.bed != nil {
		return b.bed.file.Close()
	}
	return nil
}

// thread is the engine loop of EngineThread. It never sleeps.
func (d *device) thread() {
	runtime.LockOSThread()
	defer close(d.back.ended)
	for k := uint32(0); !d.back.stop.Load(); k++ {
		if k%clockEvery == 0 {
			d.tick(d.clock())
		}
		if d.pass() == 0 {
			cpu.Pause()
		}
		if k%yieldEvery == 0 {
			runtime.Gosched() // lets the program run where it has no other processor
		}
	}
}

// yieldEvery is how many passes the thread makes between two calls of Gosched.
const yieldEvery = 1024

// standIn is the goroutine of EngineBackground.
func (d *device) standIn() {
	b := &d.back
	defer close(b.ended)
	nap := time.NewTimer(period)
	defer nap.Stop()
	for !b.stop.Load() {
		d.serve()
		for polls := true; polls && !b.stop.Load(); {
			polls = d.polled(nap)
		}
		d.sleep(nap)
	}
}

// polled reports whether the program has polled since the last check. If it has, polled
// first waits for one period, or until Rest is called.
func (d *device) polled(nap *time.Timer) bool {
	b := &d.back
	n := d.passes.Load()
	if n == b.seen {
		return false
	}
	b.seen = n
	d.tick(d.clock()) // a program that polls seldom would let timers expire late
	nap.Reset(period)
	select {
	case <-nap.C:
		return true
	case <-b.wakes:
		b.seen = b.rested.Load()
		return d.passes.Load() != b.seen
	}
}

// Rest reports that the caller stops polling. The background goroutine then takes over
// without waiting for a period, unless another worker polls the device.
func (d *device) Rest() {
	b := &d.back
	if b.asleep.Load() != 0 {
		return
	}
	b.rested.Store(d.passes.Load())
	select {
	case b.wakes <- struct{}{}:
	default:
	}
}

// serve runs the engine until no work is left. If the link stays full, it sleeps for
// one period.
func (d *device) serve() {
	got := 1
	for k := 0; got > 0 && k < maxDrain; k++ {
		got = d.pass()
	}
	d.tick(d.clock())
	if d.dirtyN.Load() == 0 {
		return
	}
	for range dirtyTries {
		runtime.Gosched()
		d.tick(d.clock())
		if d.pass(); d.dirtyN.Load() == 0 {
			return
		}
	}
	time.Sleep(period)
}

// dirtyTries is how often serve retries queue pairs in engine.dirty before it sleeps.
const dirtyTries = 64

// busy reports whether packets wait to be sent or received.
func (d *device) busy() bool {
	return d.dirtyN.Load() != 0 || d.kind == overInproc && d.in.ready() ||
		d.kind == overFabric && d.fab.mail.waits(d.fab.self)
}

// sleep blocks until work arrives or the first timer expires. The doc comment of
// background has the store order that it relies on.
func (d *device) sleep(nap *time.Timer) {
	b := &d.back
	if d.busy() { // the goroutine that owns this work may need the processor
		runtime.Gosched()
		return
	}
	until := d.firstTimer()
	if b.bed != nil {
		b.bed.alarm(d.fromNow(until))
		if b.bed.enter() != nil { // the system has no memory for it: retry after a period
			time.Sleep(period)
			return
		}
		defer b.bed.leave()
	}
	b.asleep.Store(1)
	defer b.asleep.Store(0)
	switch {
	case shmem.PrivateBarrier() != nil:
		time.Sleep(period)
	case d.busy(), b.stop.Load(), d.firstTimer() < until:
	case b.bed != nil:
		b.bed.lie()
	case until == never:
		<-b.wakes
	default:
		nap.Reset(d.fromNow(until))
		select {
		case <-nap.C:
		case <-b.wakes:
		}
	}
}

// firstTimer returns the time of the first timer or delayed packet, or never.
func (d *device) firstTimer() ucs.Time {
	first := never
	if d.timedN.Load() != 0 {
		first = ucs.Time(d.nextDue.Load())
	}
	if d.kind == overFabric {
		if t := d.fab.next(); t != 0 {
			first = min(first, t)
		}
	}
	return first
}

// fromNow returns the time from now until then, at least minNap. It returns -1 for
// never.
func (d *device) fromNow(until ucs.Time) time.Duration {
	if until == never {
		return -1
	}
	return max(until.Sub(d.clock()), minNap)
}

// minNap is the shortest sleep.
const minNap = 10 * time.Microsecond

// wake wakes the background goroutine if it sleeps.
func (d *device) wake() {
	if d.back.asleep.Load() != 0 {
		d.wakeUp()
	}
}

//go:noinline
func (d *device) wakeUp() {
	b := &d.back
	if !b.asleep.CompareAndSwap(1, 0) {
		return
	}
	if b.bed != nil {
		_ = b.bed.file.SetReadDeadline(time.Unix(1, 0))
		return
	}
	select {
	case b.wakes <- struct{}{}:
	default:
	}
}
