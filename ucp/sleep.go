package ucp

import (
	"context"
	"math"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

const (
	// memPollSleep is the sleep of a wait that polls memory. With the overhead of the system it
	// is about 80 us.
	memPollSleep = 30 * time.Microsecond
	// minSpin is the shortest spin time that the clock can measure. With a shorter one,
	// also 0, a wait makes armPasses passes. They take about as long as arming does. A
	// message that arrives in that time costs neither side a system call.
	minSpin   = time.Microsecond
	armPasses = 256
	// shortSleep bounds a sleep that must end for something that causes no wake-up.
	shortSleep = time.Millisecond
	// serviceShare divides a transport's time-out for dead peers. The quotient bounds a sleep,
	// because the transport sends its keepalives only when it progresses.
	serviceShare = 16
	// maxSpurious is the number of consecutive spurious wake-ups, each after less
	// than spuriousTime, that a sleeper accepts. After them it sleeps once without the
	// ifaces, for at most soon.
	maxSpurious  = 7
	spuriousTime = 20 * time.Microsecond
)

// sleeper is how the goroutine that progresses blocks. It spins first, then arms the ifaces
// and sleeps in poll(2).
type sleeper struct {
	spin    ucs.Time       // spin time before a sleep; < 0: never sleep
	after   uint32         // idle passes before the spin time is checked
	set     *shmem.PollSet // the worker's EventFD, then those of the ports
	none    *shmem.PollSet // the empty set
	unarmed bool           // a port has no EventFD, so it cannot wake the sleeper

	ends <-chan struct{} // Done channel of the context whose end calls Signal
	stop func() bool     // stops that call
}

// initSleep sets the spin time: spin if it is not 0, else the setting.
func (w *Worker) initSleep(spin time.Duration) {
	s := &w.t.sleeper
	if spin == 0 {
		if spin = rowSpinTime.Get(w.t.ctx.settings); spin == config.Forever {
			spin = -1
		}
	}
	if w.t.slow.set == nil {
		spin = -1
	}
	s.spin, s.after, w.t.ctxCheckPasses = ucs.Time(spin), clockPasses, ctxPasses
	if spin >= 0 && spin < minSpin {
		s.spin, s.after, w.t.ctxCheckPasses = 0, 1, armPasses // not right after a pass with work: the wait may be over
	}
	if s.spin < 0 {
		return
	}
	fds := []int{w.t.wake.signal.FD()}
	for _, wi := range w.t.ifaces {
		fd := wi.iface.EventFD()
		fds = append(fds, fd)
		s.unarmed = s.unarmed || fd < 0
	}
	s.set, s.none = shmem.NewPollSet(fds...), shmem.NewPollSet()
}

// sleep blocks until there is something to progress, Signal is called, or ctx ends. It may
// return early. p counts the consecutive spurious wake-ups.
//
// sleep returns without blocking if a callback is due, Signal was called or an iface has
// something to progress. With ThreadMulti the caller holds the lock, which is released
// while poll blocks.
//
//go:noinline
func (w *thread) sleep(ctx context.Context, p *waitLoop) {
	s := &w.sleeper
	s.watch(ctx, w)
	w.am.retainer.service()
	if ctx.Err() != nil || w.lowerSignal() || w.inCallbacks || len(w.dueCallbacks)+len(w.am.failureCalls) > 0 {
		return
	}
	if p.since++; p.since > spinOver+maxSpurious {
		p.since = spinOver
		w.poll(1, shortSleep) // only Signal ends it
		return
	}
	d := time.Duration(-1)
	if w.eviction.maxActive != math.MaxInt {
		w.eviction.evictIdle(ucs.Now())
		if w.eviction.excess() > 0 {
			d = evictInterval // connections may become idle
		}
	}
	switch st := w.armIfaces(); {
	case st == ucs.Busy:
		return
	case st != ucs.OK || s.unarmed:
		d = shortSleep
	case d < 0 && w.serviceInterval > 0:
		d = w.serviceInterval
	}
	if w.show != nil {
		w.show.publishBeforeSleep(w)
	}
	w.count.Inc(cntSlept)
	start := ucs.Now()
	if sweep := w.slab.SweepAll(start); sweep > 0 && (d < 0 || sweep < d) {
		d = sweep
	}
	if w.poll(math.MaxInt, d) > 0 {
		w.serveWoken()
	}
	if ucs.Now().Sub(start) >= spuriousTime {
		p.since = spinOver
	}
}

// poll sleeps. With ThreadMulti it releases the lock in the meantime, so that other
// goroutines can post.
func (w *thread) poll(fds int, d time.Duration) int {
	b := &w.owner
	if w.am.multi {
		b.sleeping = true
		w.mu.Unlock()
	}
	n, _ := w.sleeper.set.Wait(fds, d) // an error is an early return
	if w.am.multi {
		w.lockPass()
		b.sleeping, b.mustWake = false, false
	}
	return n
}

// sleepBriefly blocks for memPollSleep, or until Signal is called.
//
//go:noinline
func (w *thread) sleepBriefly() {
	switch {
	case w.am.multi: // Signal is for the goroutine that holds the progress ownership
		_, _ = w.sleeper.none.Wait(0, memPollSleep)
	case !w.lowerSignal():
		_, _ = w.sleeper.set.Wait(1, memPollSleep)
	}
}

// armIfaces arms all ifaces. It returns Busy if there is something to progress already, and
// InProgress if something will be due that causes no wake-up.
func (w *thread) armIfaces() ucs.Status {
	all := ucs.OK
	for _, wi := range w.ifaces {
		if wi.state == ifaceArmed && wi.iface.ActiveEndpoints() == 0 {
			continue // armed, and not progressed since
		}
		switch wi.arm(uct.EventRecv | uct.EventSend) {
		case ucs.OK, ucs.Unsupported:
		case ucs.Busy:
			w.forceSlowPoll()
			return ucs.Busy
		default:
			all = ucs.InProgress
		}
	}
	return all
}

// forceSlowPoll makes the next pass look at all ifaces.
func (w *thread) forceSlowPoll() {
	w.passes, w.slow.passes = periodicPasses, w.slow.everyPasses
}

// serveWoken progresses the inactive ifaces that woke the sleeper. Those that became active
// take part in the next pass.
func (w *thread) serveWoken() {
	for k, wi := range w.ifaces {
		if w.sleeper.set.Ready(k + 1) {
			wi.serve()
			w.refreshActive()
		}
	}
}

// watch makes the end of ctx call Signal, until another context is passed or the worker
// closes. A loop of waits with one context pays for that once. Contexts
// that have ended may share one Done channel, so Signal may not be called for one of them.
// sleep checks for that itself.
func (s *sleeper) watch(ctx context.Context, w *thread) {
	ends := ctx.Done()
	if ends == nil || ends == s.ends {
		return
	}
	s.unwatch()
	s.ends, s.stop = ends, context.AfterFunc(ctx, w.signal)
}

func (s *sleeper) unwatch() {
	if s.stop != nil {
		s.stop()
	}
	s.ends, s.stop = nil, nil
}
