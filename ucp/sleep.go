package ucp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
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
	// ifaces, for at most shortSleep.
	maxSpurious  = 7
	spuriousTime = 20 * time.Microsecond
)

// sleeper is how the goroutine that progresses blocks. It spins first, then arms the ifaces
// and sleeps in poll(2).
type sleeper struct {
	spin    ucs.Time       // spin time before a sleep; < 0: never sleep
	after   uint32         // idle passes before the spin time is checked
	set     *shmem.PollSet // the worker's EventFD, then those of the ifaces
	none    *shmem.PollSet // the empty set
	unarmed bool           // an iface has no EventFD, so it cannot wake the sleeper
	// unchecked is set while a goroutine sleeps and the ifaces will not check their peers before
	// it wakes, because nothing waited for one.
	unchecked bool

	ends <-chan struct{} // Done channel of the context whose end calls Signal
	stop func() bool     // stops that call
}

// openPolling prepares to poll all ifaces and to sleep: spin is as in initSleep.
func (w *thread) openPolling(all []*workerIface, spin time.Duration) {
	w.polling.ifaces = all
	w.polling.wake.problem = w.openWakeup()
	w.initSleep(spin)
}

// initSleep sets the spin time: spin if it is not 0, else the setting.
func (w *thread) initSleep(spin time.Duration) {
	s := &w.polling.sleeper
	if spin == 0 {
		if spin = rowSpinTime.Get(w.ctx.settings); spin == config.Forever {
			spin = -1
		}
	}
	if w.polling.slow.set == nil {
		spin = -1
	}
	s.spin, s.after, w.ctxCheckPasses = ucs.Time(spin), clockPasses, ctxPasses
	if spin >= 0 && spin < minSpin {
		s.spin, s.after, w.ctxCheckPasses = 0, 1, armPasses // not right after a pass with work: the wait may be over
	}
	if s.spin < 0 {
		return
	}
	s.none = shmem.NewPollSet()
	w.polling.watchIfaces()
}

// watch adds the descriptor of an iface that a Thread has opened to those that slow looks and sleeps
// watch.
func (p *polling) watch(wi *workerIface) {
	if p.slow.set == nil {
		return
	}
	fd := wi.iface.EventFD()
	if fd >= 0 && p.slow.set.Add(fd, uint64(wi.index), shmem.EventIn) != nil {
		p.sleeper.unarmed = true // sleeps are short
	}
	if p.sleeper.set != nil {
		p.watchIfaces()
	}
}

// watchIfaces sets the descriptors that sleeps watch: those of the ifaces that are open.
func (p *polling) watchIfaces() {
	fds := []int{p.wake.signal.FD()}
	for _, wi := range p.ifaces {
		fd := wi.iface.EventFD()
		fds = append(fds, fd)
		p.sleeper.unarmed = p.sleeper.unarmed || fd < 0 && wi.isOpen()
	}
	p.sleeper.set = shmem.NewPollSet(fds...)
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
	s := &w.polling.sleeper
	// The end of ctx calls Signal, until another context is passed or the worker closes. A loop
	// of waits with one context pays for that once. Contexts that have ended may share one
	// Done channel, so Signal may not be called for one of them: ctx is checked below.
	if ends := ctx.Done(); ends != nil && ends != s.ends {
		s.unwatch()
		s.ends, s.stop = ends, context.AfterFunc(ctx, w.polling.signal)
	}
	w.am.retainer.service()
	if ctx.Err() != nil || w.polling.lowerSignal() || w.callbacks.running || w.callbacks.pending() {
		return
	}
	if p.since++; p.since > spinOver+maxSpurious {
		p.since = spinOver
		w.poll(1, shortSleep) // only Signal ends it
		return
	}
	d := time.Duration(-1)
	if w.polling.eviction.maxActive != math.MaxInt {
		w.polling.eviction.evictIdle(ucs.Now())
		if w.polling.eviction.excess() > 0 {
			d = evictInterval // connections may become idle
		}
	}
	checks := w.polling.checkPeers()
	short := s.unarmed // something will be due that causes no wake-up
	for _, wi := range w.polling.ifaces {
		if wi.state == ifaceArmed && wi.iface.ActiveEndpoints() == 0 {
			continue // armed, and not progressed since
		}
		switch wi.arm(uct.EventRecv | uct.EventSend) {
		case ucs.OK, ucs.Unsupported:
		case ucs.Busy: // there is something to progress already
			w.polling.forceSlowPoll()
			return
		default:
			short = true
		}
	}
	switch {
	case short:
		d = shortSleep
	case d < 0 && w.polling.serviceInterval > 0:
		d = w.polling.serviceInterval
	}
	if checks > 0 && (d < 0 || checks < d) {
		d = checks
	}
	if w.show != nil {
		w.show.publishBeforeSleep(w)
	}
	w.count.Inc(cntSlept)
	start := ucs.Now()
	if sweep := w.slab.SweepAll(start); sweep > 0 && (d < 0 || sweep < d) {
		d = sweep
	}
	s.unchecked = checks == 0
	n := w.poll(math.MaxInt, d)
	s.unchecked = false
	if n > 0 {
		for k, wi := range w.polling.ifaces { // those that become active take part in the next pass
			if s.set.Ready(k + 1) {
				wi.serve()
				w.polling.refreshActive(w.callbacks.pending())
			}
		}
	}
	if ucs.Now().Sub(start) >= spuriousTime {
		p.since = spinOver
	}
}

// checkPeers lets the active ifaces check the peers on which something waits. It returns the time
// until the next check. 0: nothing waits; negative: no iface makes checks.
func (p *polling) checkPeers() time.Duration {
	next := time.Duration(-1)
	for _, wi := range p.ifaces {
		if c, ok := wi.iface.(uct.PeerChecker); ok && wi.iface.ActiveEndpoints() > 0 {
			if d := c.CheckPeers(); d > 0 && (next <= 0 || d < next) {
				next = d
			} else {
				next = max(next, 0)
			}
		}
	}
	return next
}

// checkSoon ends the sleep of the goroutine that progresses, if the ifaces will not check their
// peers in time for a new operation that waits. The caller holds the lock.
func (p *polling) checkSoon() {
	if p.sleeper.unchecked {
		p.sleeper.unchecked = false
		p.signal()
	}
}

// poll sleeps. With ThreadMulti it releases the lock in the meantime, so that other
// goroutines can post.
func (w *thread) poll(fds int, d time.Duration) int {
	b := &w.owner
	if w.am.multi {
		b.state = ownerSleeps
		w.owner.mu.Unlock()
	}
	n, _ := w.polling.sleeper.set.Wait(fds, d) // an error is an early return
	if w.am.multi {
		w.owner.lockPass()
		b.state, b.mustWake = ownerRuns, false
	}
	return n
}

// sleepBriefly blocks for memPollSleep, or until Signal is called.
//
//go:noinline
func (p *polling) sleepBriefly(multi bool) {
	switch {
	case multi: // Signal is for the goroutine that holds the progress ownership
		_, _ = p.sleeper.none.Wait(0, memPollSleep)
	case !p.lowerSignal():
		_, _ = p.sleeper.set.Wait(1, memPollSleep)
	}
}

// forceSlowPoll makes the next pass look at all ifaces.
func (p *polling) forceSlowPoll() {
	p.idle, p.passes, p.slow.passes, p.slow.skipped = p.maxIdle, p.dueAfter, p.slow.everyPasses, busyLooks
}

func (s *sleeper) unwatch() {
	if s.stop != nil {
		s.stop()
	}
	s.ends, s.stop = nil, nil
}

// Wake-up. Invariant: a Signal is never lost. It sets raised before it writes the EventFD,
// and lowerSignal clears raised before it drains the EventFD. So a Signal that lowerSignal
// has not reported stays in raised. Arm and sleep look at raised before they block.

// wakeup is the state of wake-ups through the event descriptors.
type wakeup struct {
	signal       *shmem.EventFD
	raised       atomic.Bool // signal is raised, or about to be; Signal sets it, lowerSignal clears it
	problem      error       // why there is no event descriptor
	serviceTimer *time.Timer // calls Signal when something is due that causes no wake-up
}

// signalData identifies the worker's own EventFD among those of the ifaces in
// slowPoll.set.
const signalData = 1 << 32

// openWakeup opens one descriptor that watches the EventFDs of all ifaces.
func (w *thread) openWakeup() error {
	set, err := shmem.NewEpoll()
	if err != nil {
		return err
	}
	flag, err := shmem.NewEventFD()
	if err != nil {
		return errors.Join(err, set.Close())
	}
	err = set.Add(flag.FD(), signalData, shmem.EventIn)
	for k, wi := range w.ifaces {
		if fd := wi.iface.EventFD(); fd >= 0 && err == nil {
			err = set.Add(fd, uint64(k), shmem.EventIn)
		}
	}
	if err != nil {
		return errors.Join(err, flag.Close(), set.Close())
	}
	w.polling.slow.set, w.polling.wake.signal = set, flag
	return nil
}

// EventFD returns a descriptor that becomes readable after Arm when there is something
// to progress. The worker owns it: do not read or close it. After Close EventFD
// returns ErrClosed.
func (w *Worker) EventFD() (int, error) {
	w.t.lock()
	defer w.t.unlock()
	if w.t.life.closed() {
		return -1, fmt.Errorf("event descriptor: %w", ErrClosed)
	}
	if w.t.polling.slow.set == nil {
		return -1, fmt.Errorf("event descriptor: %w", w.t.polling.wake.problem)
	}
	return w.t.polling.slow.set.FD(), nil
}

// Arm requests a wake-up through EventFD. It returns ErrBusy if there is something to
// progress already, or Signal was called: progress, then arm again.
func (w *Worker) Arm() error {
	w.t.lock()
	defer w.t.unlock()
	if w.t.life.closed() {
		return fmt.Errorf("arm: %w", ErrClosed)
	}
	if w.t.polling.slow.set == nil {
		return fmt.Errorf("arm: %w", w.t.polling.wake.problem)
	}
	if w.t.owner.state == ownerRuns || w.t.polling.lowerSignal() || w.t.callbacks.pending() {
		return ErrBusy
	}
	w.t.am.retainer.service()
	for _, wi := range w.t.ifaces {
		switch st := wi.arm(uct.EventRecv | uct.EventSend); st {
		case ucs.OK, ucs.Unsupported:
		case ucs.Busy, ucs.InProgress:
			w.t.polling.forceSlowPoll()
			return ErrBusy
		default:
			return fmt.Errorf("arm %s: %w", wi.name(), statusErr(st))
		}
	}
	if w.t.show != nil {
		w.t.show.publishBeforeSleep(&w.t)
	}
	within := w.t.polling.serviceInterval
	if checks := w.t.polling.checkPeers(); checks > 0 && (within == 0 || checks < within) {
		within = checks
	}
	if sweep := w.t.slab.SweepAll(ucs.Now()); sweep > 0 && (within == 0 || sweep < within) {
		within = sweep
	}
	switch k := &w.t.polling.wake; { // a call of signal after within, unless Arm is called again before
	case within == 0:
		k.stop()
	case k.serviceTimer == nil:
		k.serviceTimer = time.AfterFunc(within, w.t.polling.signal)
	default:
		k.serviceTimer.Reset(within)
	}
	return nil
}

func (k *wakeup) stop() {
	if k.serviceTimer != nil {
		k.serviceTimer.Stop()
	}
}

// Signal wakes a goroutine that sleeps on EventFD. If none sleeps, the next Arm returns
// ErrBusy. It is safe for use from any goroutine, also after Close.
func (w *Worker) Signal() { w.t.polling.signal() }

func (p *polling) signal() {
	if p.wake.raised.Swap(true) || p.wake.signal == nil {
		return
	}
	_ = p.wake.signal.Signal() // it fails only if the worker is closed: no goroutine sleeps
}

// lowerSignal clears a Signal and reports whether there was one.
func (p *polling) lowerSignal() bool {
	if !p.wake.raised.Load() {
		return false
	}
	// A Signal between the store and the drain leaves raised set although the EventFD is
	// drained. The next Arm or sleep finds it.
	p.wake.raised.Store(false)
	if p.wake.signal != nil {
		p.wake.signal.Drain()
	}
	return true
}
