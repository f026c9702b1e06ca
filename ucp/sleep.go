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
	// napTime is for how long who polls memory sleeps: with what the system adds
	// it is about 80 us.
	napTime = 30 * time.Microsecond
	// minSpin is the shortest spinning that a clock measures. For less, 0 too, a wait
	// makes armPasses: for about as long as arming would take, since what comes
	// meanwhile costs neither side a system call.
	minSpin   = time.Microsecond
	armPasses = 256
	// soon bounds a sleep that something without a sign may have to end.
	soon = time.Millisecond
	// tendShare of the time within which a transport tells that a peer is dead is how
	// long a sleeper leaves it alone: it asks for signs of life in its passes.
	tendShare = 16
	// maxFruitless is how many times in a row a sleeper may be woken for nothing, and
	// before it has slept for aWink, until it sleeps through what wakes it for a while.
	maxFruitless = 7
	aWink        = 20 * time.Microsecond
)

// sleeper is how the goroutine that progresses blocks: first it spins, then it
// arms the ifaces and sleeps in poll(2).
type sleeper struct {
	spin  ucs.Time       // before a sleep; < 0: never sleep
	after uint32         // idle passes before spin is looked at
	set   *shmem.PollSet // the worker's flag, then the ports' descriptors
	none  *shmem.PollSet // nothing
	deaf  bool           // a port has no descriptor: nothing wakes for it

	ends <-chan struct{} // of the context whose end calls Signal
	stop func() bool     // ends that
}

// initSleep chooses the time for spinning: the program's, else the setting's.
func (w *Worker) initSleep(spin time.Duration) {
	s := &w.sleeper
	if spin == 0 {
		if spin = rowSpinTime.Get(w.ctx.settings); spin == config.Forever {
			spin = -1
		}
	}
	if w.slow.set == nil {
		spin = -1
	}
	s.spin, s.after, w.looks = ucs.Time(spin), clockPasses, ctxPasses
	if spin >= 0 && spin < minSpin {
		s.spin, s.after, w.looks = 0, 1, armPasses // not right after something was done: it may be what is waited for
	}
	if s.spin < 0 {
		return
	}
	fds := []int{w.wake.signal.FD()}
	for _, p := range w.ports {
		fd := p.iface.EventFD()
		fds = append(fds, fd)
		s.deaf = s.deaf || fd < 0
	}
	s.set, s.none = shmem.NewPollSet(fds...), shmem.NewPollSet()
}

// sleep blocks until there is something to progress, Signal is called, or ctx
// ends. It may return early. p counts the sleeps in a row that were none, and brought
// nothing.
//
//go:noinline
func (w *Worker) sleep(ctx context.Context, p *pause) {
	s := &w.sleeper
	s.watch(ctx, w)
	w.am.keep.tend()
	if ctx.Err() != nil || w.lowerSignal() || w.calling || len(w.calls)+len(w.am.failed) > 0 {
		return
	}
	if p.since++; p.since > spunOut+maxFruitless {
		p.since = spunOut
		w.poll(1, soon) // only Signal ends it
		return
	}
	d := time.Duration(-1)
	if w.lulls.most != math.MaxInt {
		w.lulls.look(ucs.Now())
		if w.lulls.excess() > 0 {
			d = lullEvery // then there may be idle ones
		}
	}
	switch st := w.armPorts(); {
	case st == ucs.Busy:
		return
	case st != ucs.OK || s.deaf:
		d = soon
	case d < 0 && w.tendEvery > 0:
		d = w.tendEvery
	}
	if w.show != nil {
		w.show.arming(w)
	}
	w.count.Inc(cntSlept)
	lain := ucs.Now()
	if sweep := w.slab.sweepAll(lain); sweep > 0 && (d < 0 || sweep < d) {
		d = sweep
	}
	if w.poll(math.MaxInt, d) > 0 {
		w.served()
	}
	if ucs.Now().Sub(lain) >= aWink {
		p.since = spunOut
	}
}

// poll sleeps, with ThreadMulti outside of the lock: posts go through meanwhile.
func (w *Worker) poll(fds int, d time.Duration) int {
	b := &w.baton
	if w.am.multi {
		b.inPoll = true
		w.mu.Unlock()
	}
	n, _ := w.sleeper.set.Wait(fds, d) // an error is an early return
	if w.am.multi {
		w.lockPass()
		b.inPoll, b.rouse = false, false
	}
	return n
}

// nap blocks for a moment, or until Signal is called.
//
//go:noinline
func (w *Worker) nap() {
	switch {
	case w.am.multi: // Signal is for who has the baton
		_, _ = w.sleeper.none.Wait(0, napTime)
	case !w.lowerSignal():
		_, _ = w.sleeper.set.Wait(1, napTime)
	}
}

// armPorts has everything that comes wake the sleeper. Busy: something is there
// already. InProgress: something will be due that gives no sign.
func (w *Worker) armPorts() ucs.Status {
	all := ucs.OK
	for _, p := range w.ports {
		if p.state == portArmed && p.iface.ActiveEndpoints() == 0 {
			continue // it has been quiet since
		}
		switch p.arm(uct.EventRecv | uct.EventSend) {
		case ucs.OK, ucs.Unsupported:
		case ucs.Busy:
			w.lookSoon()
			return ucs.Busy
		default:
			all = ucs.InProgress
		}
	}
	return all
}

// lookSoon has the next pass look at all ifaces.
func (w *Worker) lookSoon() {
	w.passes, w.slow.passes = lookEvery, w.slow.everyPasses
}

// served does for inactive ifaces what woke the sleeper, and has those that have
// become active by it take part in the next pass.
func (w *Worker) served() {
	for k, p := range w.ports {
		if w.sleeper.set.Ready(k + 1) {
			p.serve()
			w.refreshActive()
		}
	}
}

// watch has the end of ctx call Signal. It stays so until another context is
// waited with, or the worker closes: who waits in a loop pays once. Nothing calls
// Signal for a context that has ended: those may share one channel.
func (s *sleeper) watch(ctx context.Context, w *Worker) {
	ends := ctx.Done()
	if ends == nil || ends == s.ends {
		return
	}
	s.unwatch()
	s.ends, s.stop = ends, context.AfterFunc(ctx, w.Signal)
}

func (s *sleeper) unwatch() {
	if s.stop != nil {
		s.stop()
	}
	s.ends, s.stop = nil, nil
}
