package ucp

import (
	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

const (
	batch          = 64  // messages and events per pass and iface
	periodicPasses = 512 // passes between two reads of the clock, of about 40 ns each
	busyItems      = 4   // completed items that count as one pass
	// passes over an inactive iface with a readable EventFD, at most
	servePasses = 1100
)

// progresser is the part of an iface that each pass uses.
type progresser interface{ Progress(budget int) int }

// noIface takes the place of the first iface if none is active.
type noIface struct{}

func (noIface) Progress(int) int { return 0 }

// Progress does bounded work: it receives messages, handles events, resumes pending
// operations and runs callbacks. It returns the number of items handled. It never sleeps.
//
//hot:bench BenchmarkTagPair BenchmarkIdleProgress
//gcassert:inline
func (w *Worker) Progress() int { return w.t.progress() }

// progress is Progress.
//
//hot:bench BenchmarkTagPair BenchmarkIdleProgress
//go:nosplit
func (w *thread) progress() int {
	if w.locked {
		return w.progressLocked()
	}
	n := w.firstActive.Progress(batch)
	if w.moreWork {
		n += w.progressMore()
	}
	w.passes += uint32(n+busyItems) / busyItems
	if w.passes >= periodicPasses {
		n += w.doPeriodic()
	}
	return n
}

// progressLocked is Progress for ThreadMulti, for handlers, and for closed workers. It
// returns 0 in a handler, and if another goroutine holds the lock or the progress
// ownership. That goroutine progresses the worker.
//
//go:noinline
func (w *thread) progressLocked() int {
	if !w.am.multi && w.am.inHandler {
		return 0 // a handler called it
	}
	if w.lockWaiters.Load() > 0 {
		w.giveWay()
	}
	// The lock's owner is progressing, or releases the lock before the next call.
	for k := 0; !w.mu.TryLock(); k++ {
		if k == progressTries {
			return 0
		}
		cpu.Pause()
	}
	if w.owner.held {
		w.unlockShared()
		return 0
	}
	w.owner.held = true
	n := w.pass()
	w.releaseProgress()
	return n
}

// progressTries is the number of attempts of Progress to get a taken lock. It takes longer
// than a post holds the lock.
const progressTries = 16

// pass is one pass of Progress. The caller holds the lock and the progress ownership. It
// runs no callbacks.
func (w *thread) pass() int {
	n := w.firstActive.Progress(batch)
	if len(w.active) > 1 {
		for _, f := range w.active[1:] {
			n += f.Progress(batch)
		}
	}
	w.passes += 1 + uint32(n)/busyItems
	if w.passes >= periodicPasses {
		n += w.doPeriodic()
	}
	return n
}

// progressMore progresses all active ifaces but the first, and runs the
// callbacks that are due.
//
//go:noinline
func (w *thread) progressMore() int {
	n := 0
	for _, f := range w.active[min(1, len(w.active)):] {
		n += f.Progress(batch)
	}
	if len(w.dueCallbacks)+len(w.am.failureCalls) > 0 {
		w.runCallbacks()
	}
	return n
}

// updateMoreWork updates odd: it reports whether a pass has more to do than to progress one.
func (w *thread) updateMoreWork() {
	w.moreWork = len(w.active) > 1 || len(w.dueCallbacks)+len(w.am.failureCalls) > 0
}

// slowPoll is the state of the slow looks, in which a spinning worker serves its
// inactive ifaces.
type slowPoll struct {
	passes      uint32 // since the last slow look
	everyPasses uint32
	every       ucs.Time
	due         ucs.Time
	set         *shmem.Epoll // the EventFDs of all ifaces; nil: poll the ifaces instead
	all         bool         // every iface counts as active: UCX_IDLE_SKIP=n
}

func (s *slowPoll) init(c *config.Set) {
	s.everyPasses = uint32(rowSlowPasses.Get(c))
	s.every = ucs.Time(rowSlowInterval.Get(c))
	s.all = !rowIdleSkip.Get(c)
}

// doPeriodic does periodic work after every periodicPasses passes. It returns the number
// of items handled.
//
//go:noinline
func (w *thread) doPeriodic() int {
	s := &w.slow
	s.passes += w.passes
	w.passes = 0
	now := ucs.Now()
	w.slab.Tidy(now)
	w.am.retainer.service()
	w.eviction.evictIdle(now)
	if w.show != nil {
		w.show.publishIfDue(w, now)
	}
	if s.passes < s.everyPasses && now.Before(s.due) {
		return 0
	}
	s.passes, s.due = 0, now+s.every
	return w.serveInactive()
}

// serveInactive serves the ifaces without active endpoints: those whose EventFD is readable
// and those that are not armed.
func (w *thread) serveInactive() (done int) {
	if len(w.active) < len(w.ifaces) {
		done = w.pollInactive()
	}
	w.refreshActive()
	return done
}

func (w *thread) pollInactive() (done int) {
	var ready [16]shmem.Event
	n := 0
	if w.slow.set != nil {
		n, _ = w.slow.set.Wait(ready[:], 0) // if it fails, no iface is known to be ready
	}
	for _, e := range ready[:n] {
		if e.Data < uint64(len(w.ifaces)) {
			done += w.ifaces[e.Data].serve()
		}
	}
	for _, wi := range w.ifaces {
		if wi.state != ifaceArmed && wi.iface.ActiveEndpoints() == 0 {
			done += wi.iface.Progress(batch)
			if w.slow.set != nil {
				wi.arm(uct.EventRecv)
			}
		}
	}
	return done
}

// serve progresses an inactive port whose EventFD is readable. Some transports look at
// their sockets only in every thousandth pass, so serve makes up to servePasses passes.
func (wi *workerIface) serve() (done int) {
	if wi.iface.ActiveEndpoints() > 0 {
		return 0
	}
	wi.state = ifaceInactive
	for k := 0; k < servePasses && done == 0 && wi.iface.ActiveEndpoints() == 0; k++ {
		done = wi.iface.Progress(batch)
	}
	return done
}

// arm arms the EventFD of the iface. If an inactive port cannot be armed, because it has no
// descriptor for example, it becomes ifaceInactive and each slow look progresses it.
func (wi *workerIface) arm(k uct.EventKind) ucs.Status {
	st := wi.iface.Arm(k)
	if wi.state != ifaceActive {
		wi.state = ifaceInactive
		if st == ucs.OK && wi.iface.ActiveEndpoints() == 0 {
			wi.state = ifaceArmed
		}
	}
	return st
}

// refreshActive updates the list of ifaces that each pass progresses, and serviceInterval.
func (w *thread) refreshActive() {
	w.active, w.serviceInterval = w.active[:0], 0
	for _, wi := range w.ifaces {
		if wi.iface.ActiveEndpoints() > 0 || w.slow.all {
			wi.state = ifaceActive
			w.active = append(w.active, wi.iface)
			if d := wi.iface.Attr().FailureWithin; d > 0 && d < config.Forever && (w.serviceInterval == 0 || d/serviceShare < w.serviceInterval) {
				w.serviceInterval = max(d/serviceShare, shortSleep)
			}
		} else if wi.state == ifaceActive {
			wi.state = ifaceInactive
		}
	}
	w.firstActive = noIface{}
	if len(w.active) > 0 {
		w.firstActive = w.active[0]
	}
	w.updateMoreWork()
}
