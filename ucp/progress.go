package ucp

import (
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

const (
	batch          = 64  // messages and events per pass and iface
	periodicPasses = 512 // maximum number of passes between two calls of doPeriodic, which reads the clock: see ucs.Pace
	busyItems      = 4   // completed items that count as one pass
	// busyLooks is how many slow looks are skipped, in a row, while messages arrive: a look is a system call,
	// which delays a message.
	busyLooks = 15
	// passes over an inactive iface with a readable EventFD, at most
	servePasses = 1100
)

// polling is the part of a worker that looks for work: it polls the ifaces, and blocks on
// their descriptors.
type polling struct {
	moreWork    bool          // a pass has more to do than to progress firstActive
	passes      uint32        // since the last call of doPeriodic
	dueAfter    uint32        // passes from one call of doPeriodic to the next
	maxIdle     uint32        // passes without a call of firstActive's Progress: at most uct.MaxPasses and dueAfter
	pace        ucs.Pace      // of doPeriodic
	firstActive progresser    // the first active iface, or noIface
	word        *uct.PollWord // of firstActive, or always ready if it has none
	idle        uint32        // passes since the last call of its Progress

	active          []progresser
	ifaces          []*workerIface
	serviceInterval time.Duration // longest sleep while ifaces are active; 0: no limit
	slow            slowPoll
	wake            wakeup
	sleeper         sleeper
	eviction        idleEviction
}

// progresser is the part of an iface that each pass uses.
type progresser interface{ Progress(budget int) int }

// noIface takes the place of the first iface if none is active.
type noIface struct{}

func (noIface) Progress(int) int { return 0 }

// alwaysReady is the poll word of an iface that has none.
var alwaysReady = uct.PollWord{Next: ring.AlwaysReady()}

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
	p := &w.polling
	if !p.word.Next.Ready() && !p.moreWork {
		if p.idle++; p.idle < p.maxIdle {
			return 0
		}
		p.word.Passes, p.passes, p.idle = p.idle, p.passes+p.idle, 0
	}
	n := p.firstActive.Progress(batch)
	if p.moreWork {
		n += w.progressMore()
	}
	p.passes += uint32(n+busyItems) / busyItems
	if p.passes >= p.dueAfter {
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
	if w.owner.lockWaiters.Load() > 0 {
		w.owner.giveWay()
	}
	// The lock's owner is progressing, or releases the lock before the next call.
	for k := 0; !w.owner.mu.TryLock(); k++ {
		if k == progressTries {
			return 0
		}
		cpu.Pause()
	}
	if w.owner.state != ownerNone {
		w.unlockShared()
		return 0
	}
	w.owner.state = ownerRuns
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
	n := w.polling.firstActive.Progress(batch)
	if len(w.polling.active) > 1 {
		for _, f := range w.polling.active[1:] {
			n += f.Progress(batch)
		}
	}
	w.polling.passes += 1 + uint32(n)/busyItems
	if w.polling.passes >= w.polling.dueAfter {
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
	for _, f := range w.polling.active[min(1, len(w.polling.active)):] {
		n += f.Progress(batch)
	}
	if w.callbacks.pending() {
		w.runCallbacks()
	}
	return n
}

// slowPoll is the state of the slow looks, in which a spinning worker serves its
// inactive ifaces.
type slowPoll struct {
	passes      uint32 // since the last slow look
	everyPasses uint32
	every       ucs.Time
	due         ucs.Time
	received    uint64       // cntReceived at the last look, done or skipped
	skipped     int          // looks that were skipped since the last one
	set         *shmem.Epoll // the EventFDs of all ifaces; nil: poll the ifaces instead
	all         bool         // every iface counts as active: UCX_IDLE_SKIP=n
}

// doPeriodic is called after every polling.dueAfter passes, and does periodic work if it is due. It returns the
// number of items handled.
//
//go:noinline
func (w *thread) doPeriodic() int {
	p, s, now := &w.polling, &w.polling.slow, ucs.Now()
	s.passes += p.passes
	due := p.pace.Due(now, periodicPasses)
	p.passes, p.dueAfter = 0, p.pace.Passes()
	if p.maxIdle = min(p.dueAfter, uct.MaxPasses); !due && s.passes < s.everyPasses {
		return 0
	}
	w.slab.Tidy(now)
	w.am.retainer.service()
	p.eviction.evictIdle(now)
	if d := w.show; d != nil {
		d.armed.Store(false)
		if d.requested.Load() || !now.Before(d.next) {
			d.publish(w, now)
			d.notifyReader()
		}
	}
	if s.passes < s.everyPasses && now.Before(s.due) {
		return 0
	}
	s.passes, s.due = 0, now+s.every
	if n := w.count.Value(cntReceived); n != s.received && s.skipped < busyLooks {
		s.received = n
		s.skipped++
		return 0
	}
	s.skipped = 0
	// The ifaces without active endpoints: those whose EventFD is readable and those that are
	// not armed.
	done := 0
	if len(p.active) < len(p.ifaces) {
		var ready [16]shmem.Event
		n := 0
		if p.slow.set != nil {
			n, _ = p.slow.set.Wait(ready[:], 0) // if it fails, no iface is known to be ready
		}
		for _, e := range ready[:n] {
			if e.Data < uint64(len(p.ifaces)) {
				done += p.ifaces[e.Data].serve()
			}
		}
		for _, wi := range p.ifaces {
			if wi.state != ifaceArmed && wi.iface.ActiveEndpoints() == 0 {
				done += wi.iface.Progress(batch)
				if p.slow.set != nil {
					wi.arm(uct.EventRecv)
				}
			}
		}
	}
	p.refreshActive(w.callbacks.pending())
	return done
}

// serve progresses an inactive iface whose EventFD is readable. Some transports look at
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

// arm arms the EventFD of the iface. If an inactive iface cannot be armed, because it has no
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

// refreshActive updates what each pass does, and serviceInterval. callbacks reports that
// callbacks are due.
func (p *polling) refreshActive(callbacks bool) {
	p.active, p.serviceInterval = p.active[:0], 0
	for _, wi := range p.ifaces {
		if wi.iface.ActiveEndpoints() > 0 || p.slow.all {
			wi.state = ifaceActive
			p.active = append(p.active, wi.iface)
			if d := wi.iface.Attr().FailureWithin; d > 0 && d < config.Forever && (p.serviceInterval == 0 || d/serviceShare < p.serviceInterval) {
				p.serviceInterval = max(d/serviceShare, shortSleep)
			}
		} else if wi.state == ifaceActive {
			wi.state = ifaceInactive
		}
	}
	p.firstActive, p.word = noIface{}, &alwaysReady
	if len(p.active) > 0 {
		p.firstActive = p.active[0]
		if wp, ok := p.firstActive.(uct.WordPoller); ok {
			p.word = wp.PollWord()
		}
	}
	p.moreWork = len(p.active) > 1 || callbacks
}

// idleEviction evicts idle connections. It keeps the number of active connections of a worker,
// over all its ifaces, at or below a bound. Above the bound it suspends idle connections,
// least recently used first. The transport resumes a suspended connection on use.
type idleEviction struct {
	maxActive int // bound on active connections; math.MaxInt: no bound, evictIdle does nothing
	caches    []uct.ConnectionCache
	due       ucs.Time
	since     []ucs.Time
}

// addCache has the connections of an iface count, if it can suspend them.
func (p *polling) addCache(f uct.Iface) {
	if c, ok := f.(uct.ConnectionCache); ok {
		p.eviction.caches = append(p.eviction.caches, c)
	}
}

// evictInterval is the interval between two searches for idle connections.
const evictInterval = 10 * time.Millisecond

// evictIdle suspends idle connections if there are more active ones than the bound. Below the
// bound it looks at the connections too, so that the ifaces know which were used last.
func (l *idleEviction) evictIdle(now ucs.Time) {
	if l.maxActive == math.MaxInt || now.Before(l.due) {
		return
	}
	l.due = now.Add(evictInterval)
	since := l.since[:0]
	for _, f := range l.caches {
		since = f.Candidates(now, since)
	}
	l.since = since
	excess := l.excess()
	if excess <= 0 || len(since) == 0 {
		return
	}
	slices.Sort(since)
	t := since[min(excess, len(since))-1]
	for _, f := range l.caches {
		excess -= f.Evict(now, t, excess)
	}
}

// excess returns the number of active connections above the bound. It is negative below it.
func (l *idleEviction) excess() int {
	n := -l.maxActive
	for _, f := range l.caches {
		n += f.Active()
	}
	return n
}
