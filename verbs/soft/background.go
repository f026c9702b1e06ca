package soft

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
)

// period is how long nobody must have polled before the background goroutine
// does. What is due is done within two of them.
const period = 500 * time.Microsecond

// background runs the engine while the program does not. While the program polls
// it looks once a period whether that is still so, and at once when the program says
// that it rests. When nobody polls and nothing is under way it sleeps, and is woken
// by what comes or is posted.
type background struct {
	seen   uint32        // engine.passes at the last look
	asleep atomic.Uint32 // 1: whoever brings work wakes it
	rested atomic.Uint32 // engine.passes when the program last said that it rests
	wakes  chan struct{} // by Rest, and in-process by wakeUp
	bed    *bed          // UDP
	stop   atomic.Bool
	ended  chan struct{}
}

// startBackground starts it as the engine mode says.
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

// stopBackground ends it.
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

// thread is the engine of EngineThread: it never sleeps.
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
			runtime.Gosched() // where the program has no other processor
		}
	}
}

// yieldEvery is how many passes the thread makes between offers of its processor.
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

// polled reports whether the program has polled since the last look. Then it waits
// for a period, or until the program rests.
func (d *device) polled(nap *time.Timer) bool {
	b := &d.back
	n := d.passes.Load()
	if n == b.seen {
		return false
	}
	b.seen = n
	d.tick(d.clock()) // who polls seldom looks at the clock more seldom still
	nap.Reset(period)
	select {
	case <-nap.C:
		return true
	case <-b.wakes:
		b.seen = b.rested.Load()
		return d.passes.Load() != b.seen
	}
}

// Rest has the background goroutine take what comes from now on, unless another
// worker polls the device.
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

// serve does what there is to do; what the link does not take is for later.
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

// dirtyTries is how often what waits to be sent is tried before it takes a nap.
const dirtyTries = 64

// busy reports whether something waits to be sent or received.
func (d *device) busy() bool {
	return d.dirtyN.Load() != 0 || d.kind == overInproc && d.in.ready() ||
		d.kind == overFabric && d.fab.mail.waits(d.fab.self)
}

// sleep sleeps until something comes or a timer ends. Who brings work stores it
// and then looks at asleep; the two may pass each other in the processor, which
// the barrier forbids.
func (d *device) sleep(nap *time.Timer) {
	b := &d.back
	if d.busy() { // whoever is at it may need the processor
		runtime.Gosched()
		return
	}
	until := d.firstTimer()
	if b.bed != nil {
		b.bed.alarm(d.fromNow(until))
		if b.bed.enter() != nil { // the system has no room: as if there were work
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

// firstTimer is when the first timer ends, or a fault gives a packet; never: none
// does.
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

// fromNow is how long to sleep until then; negative: for good.
func (d *device) fromNow(until ucs.Time) time.Duration {
	if until == never {
		return -1
	}
	return max(until.Sub(d.clock()), minNap)
}

// minNap is the shortest sleep.
const minNap = 10 * time.Microsecond

// wake has the sleeping background goroutine look for work.
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
