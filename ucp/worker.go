package ucp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/platform"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// ThreadMode says which goroutines may use a worker.
type ThreadMode uint8

// Thread modes.
const (
	// ThreadMulti: any goroutine at any time; one lock guards the worker.
	ThreadMulti ThreadMode = iota
	// ThreadSerialized: any goroutine, one at a time; the program serializes them.
	ThreadSerialized
	// ThreadSingle: one goroutine.
	ThreadSingle
)

// WorkerConfig configures a worker. The zero value is valid.
type WorkerConfig struct {
	// Mode says which goroutines may use the worker. The zero value is ThreadMulti.
	Mode ThreadMode
	// UnexpectedBudget is the memory for unexpected messages in bytes. When it is exceeded,
	// senders have to use rendezvous and keep their data. 0: the setting
	// UCX_UNEXPECTED_BUDGET. A negative value is ErrInvalid.
	UnexpectedBudget int
	// Sharing is the policy by which the worker's Threads get device contexts, thread domains and
	// queue pairs. The zero value: that of the setting UCX_THREAD_SHARING.
	Sharing sharing.Policy
	// Spin is how long a wait polls before it sleeps. 0: the setting UCX_SPIN_TIME. A
	// negative Spin means that a wait never sleeps.
	Spin time.Duration
}

// Worker owns progress. Its endpoints, requests and received messages belong to it.
// With ThreadMulti its methods and those of its Endpoints and Requests are safe for use
// from any goroutine. With other modes only one goroutine at a time may use them.
// Signal is always safe.
type Worker struct {
	t         thread
	sharing   sharing.Policy
	spin      time.Duration // WorkerConfig.Spin
	threads   *threadSet    // nil: it has none
	flushed   bool          // its context, which is closing, has flushed it
	flushErr  error         // result of that flush
	mode      ThreadMode
	eager     bool          // endpoints connect when they are created
	closeDone chan struct{} // closed when Close returns, with ThreadMulti
}

// workerLife is the life of a worker: open, then closing, then closed. A worker that is closing
// refuses new operations. A closed one has no iface. The thread's lock guards the changes.
type workerLife struct{ state atomic.Uint32 }

const (
	workerOpen uint32 = iota
	workerClosing
	workerClosed
	numWorkerStates
)

// enter changes to the next state. It panics if that state must not follow.
func (l *workerLife) enter(to uint32) {
	if from := l.state.Load(); to != from+1 || to >= numWorkerStates {
		panic(fmt.Sprintf("ucp: a worker in state %d enters state %d", from, to))
	}
	l.state.Store(to)
}

// closing reports whether the worker is closing or closed.
func (l *workerLife) closing() bool { return l.state.Load() != workerOpen }

// closed reports whether the worker is closed.
func (l *workerLife) closed() bool { return l.state.Load() == workerClosed }

// NewWorker creates a worker with an iface on every usable device.
func (x *Context) NewWorker(c WorkerConfig) (*Worker, error) {
	if c.Mode > ThreadSingle {
		return nil, fmt.Errorf("new worker: thread mode %d: %w", c.Mode, ErrInvalid)
	}
	if c.UnexpectedBudget < 0 {
		return nil, fmt.Errorf("new worker: UnexpectedBudget %d is negative: %w", c.UnexpectedBudget, ErrInvalid)
	}
	domains, err := x.openedDomains()
	if err != nil {
		return nil, fmt.Errorf("new worker: %w", err)
	}
	w := x.newWorker(c.Mode)
	w.spin = c.Spin
	if w.sharing = c.Sharing; w.sharing.Assign == nil && w.sharing.Name == "" {
		w.sharing, _ = sharing.Lookup(rowThreadSharing.Get(x.settings)) // the setting's parser knows the names
	}
	if c.UnexpectedBudget > 0 {
		w.t.matching.budget.limit = uint64(c.UnexpectedBudget)
	}
	w.openIfaces(domains)
	if len(w.t.ifaces) == 0 {
		return nil, fmt.Errorf("new worker: no interface works%s: %w", reasons(w.t.refused), ErrUnsupported)
	}
	w.t.openPolling(w.t.ifaces, c.Spin)
	a, refused, err := wireup.Build(x.view(w.t.id, wireup.FeatureAbort), w.t.locals)
	w.t.address = a
	w.t.refused = append(w.t.refused, refused...)
	if err == nil {
		err = x.own(w)
	}
	if err != nil {
		return nil, fmt.Errorf("new worker: %w", errors.Join(err, w.closeIfaces()))
	}
	return w, nil
}

// newWorker returns a worker without ifaces, configured by the settings.
func (x *Context) newWorker(mode ThreadMode) *Worker {
	w := &Worker{mode: mode, t: thread{
		ctx: x, id: newWorkerID(), operations: &operations, locked: mode == ThreadMulti, tagSlow: mode == ThreadMulti || x.features&FeatureTag == 0, polling: polling{firstActive: noIface{}, word: &alwaysReady},
		lanes:   []lane{{laneLife: closedLane}},
		laneOf:  make(laneIndex),
		cold:    make(coldEps),
		rxConns: make([]*rxConn, 1),
		eps:     make([]epSlot, 1),
		count:   stats.NewSet(counterNames[:]),
	}}
	if x.liveStats != nil {
		w.t.show = &display{mode: mode, replied: make(chan struct{}, 1)}
		w.t.show.last.Store(&summary{at: ucs.Now()})
	}
	_ = w.t.stats.Add("ucp", w.t.count) // the first, so its name is not taken
	w.t.slab.init(&w.t.pool)
	w.t.am.init(&w.t, mode == ThreadMulti)
	w.t.polling.slow = slowPoll{
		everyPasses: uint32(rowSlowPasses.Get(x.settings)), every: ucs.Time(rowSlowInterval.Get(x.settings)), all: !rowIdleSkip.Get(x.settings),
	}
	thresh := rowRndvThresh.Get(x.settings)
	w.t.rndvThresh = rndvThresh{thresh.Intra, thresh.Inter}
	w.t.zcopyFrom = autoZcopyFrom
	if z := rowZcopyThresh.Get(x.settings); !z.Auto {
		n := uint64(z.Or(0))
		w.t.zcopyFrom = zcopyFrom{n, n}
	}
	w.t.maxCredits = uint32(rowRndvOutstanding.Get(x.settings))
	w.t.matching.budget.limit = uint64(rowUnexpectedBudget.Get(x.settings))
	w.t.matching.lacking = x.features.has(FeatureTag)
	w.t.polling.eviction.maxActive = rowMaxLive.Get(x.settings)
	w.eager = rowConnect.Get(x.settings) == "eager"
	w.t.owner.cores = runtime.GOMAXPROCS(0)
	return w
}

// newWorkerID returns a unique id. It equals the process's UUID but for the first four bytes. So
// package wireup stores the rest once for all workers of a process.
func newWorkerID() uct.UUID {
	id := uct.UUID(platform.ProcessID())
	binary.LittleEndian.PutUint32(id[:], binary.LittleEndian.Uint32(id[:])+workerSeq.Add(1))
	return id
}

// view returns the identity of a worker of the context, without entries.
func (x *Context) view(worker uct.UUID, f protocol.Features) wireup.View {
	return wireup.View{Host: platform.HostID(), Process: x.id.Process, Context: x.id.Context, Worker: worker, Features: f}
}

// openIfaces opens the usable ifaces of every domain. It records the others in w.refused
// with their reasons.
func (w *Worker) openIfaces(domains []openDomain) {
	w.t.refused = append(w.t.refused, w.t.ctx.refused...)
	var all []uct.IfaceInfo
	var warn []uct.Refusal // what the settings ask for and the worker does not get
	for n, d := range domains {
		infos, refused := d.Ifaces()
		all = append(all, infos...)
		w.t.refused = append(w.t.refused, refused...)
		for _, i := range infos {
			refuse := func(reason string) {
				w.t.refused = append(w.t.refused, uct.Refusal{Transport: i.Transport, Device: i.Device, Reason: reason})
			}
			if use, reason := w.t.ctx.selection.Iface(i); use != wireup.UseAll {
				refuse(reason)
				continue
			}
			wi := &workerIface{t: &w.t, info: i, domain: d, index: len(w.t.ifaces), rxConns: make(map[uint32]*rxConn)}
			c := uct.IfaceConfig{
				Handler: wi, Worker: w.t.id, Settings: w.t.ctx.settings, Wants: w.t.ctx.features.wants(),
				Stats: &w.t.stats, Resources: uct.Resources{MaxUnexpected: int(min(max(w.t.matching.budget.limit, 1), math.MaxInt))},
			}
			if w.mode == ThreadMulti { // with other modes only the program's goroutine may use the worker
				c.Unattended = wi.resumeUnattended
			}
			f, err := d.OpenIface(i, c)
			if err != nil {
				refuse(err.Error())
				warn = append(warn, w.t.refused[len(w.t.refused)-1])
				continue
			}
			wi.setIface(f)
			w.t.ifaces = append(w.t.ifaces, wi)
			w.t.locals = append(w.t.locals, wireup.LocalIface{Info: i, Attr: f.Attr(), Domain: n, Iface: f})
		}
	}
	absent := w.t.ctx.selection.Absent(all, w.t.refused)
	w.t.refused = append(w.t.refused, absent...)
	w.t.ctx.warned.Do(func() {
		for _, r := range append(warn, absent...) {
			w.t.ctx.log.Warn(r.String())
		}
	})
}

// wants returns the uct operations that the features need.
func (f Feature) wants() uct.Ops {
	ops := uct.OpsAM | uct.OpFlushLocal | uct.OpFlushRemote | uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck
	if f&FeatureRMA != 0 {
		ops |= uct.OpsPut | uct.OpsGet
	}
	if f&FeatureAtomics != 0 {
		ops |= uct.OpAtomics
	}
	return ops
}

// Refused returns the transports and devices that the worker does not use, each
// with its reason.
func (w *Worker) Refused() []uct.Refusal { return append([]uct.Refusal(nil), w.t.refused...) }

// Mode returns the thread mode of the worker.
func (w *Worker) Mode() ThreadMode { return w.mode }

// Address returns a copy of the worker's address, with which peers reach it. It is plain
// bytes that the program may send by any means. It is valid while w is open.
func (w *Worker) Address() Address { return append(Address(nil), w.t.address...) }

// Close flushes and closes the endpoints, each within CloseTimeout, then closes the ifaces.
// Operations that have not completed fail with ErrClosed. Close is idempotent. With
// ThreadMulti a second Close waits for the first, for CloseTimeout and ten seconds, then
// returns ErrTimeout.
func (w *Worker) Close() error {
	w.t.lock()
	if err := w.mayClose(); err != nil {
		w.t.unlock()
		return fmt.Errorf("close worker: %w", err)
	}
	if w.t.life.closing() {
		done := w.closeDone
		w.t.unlock()
		if done == nil {
			return nil
		}
		select { // another goroutine is closing the worker
		case <-done:
			return nil
		case <-time.After(w.t.ctx.closeTimeout + closeGrace):
			return fmt.Errorf("close worker: another goroutine is closing it: %w", ErrTimeout)
		}
	}
	w.t.life.enter(workerClosing)
	threads := w.threads
	if w.t.am.multi { // with other modes no goroutine waits for it
		w.closeDone = make(chan struct{})
		defer close(w.closeDone)
	}
	w.t.unlock()
	err := errors.Join(threads.close(), w.closeEndpoints())
	w.t.lock()
	if !w.t.acquireProgress() {
		w.t.unlock()
		return fmt.Errorf("close worker: %w", errors.Join(err, errCallbackRuns))
	}
	w.t.endAll(ucs.Closed)
	w.t.life.enter(workerClosed)
	err = errors.Join(err, w.closeIfaces())
	for x := w.t.owner.first; x != nil; { // waits without an operation
		next := x.next
		if x.id == 0 {
			x.err = ErrClosed
			w.t.owner.resolveWaiter(x, causeDone)
		}
		x = next
	}
	w.t.owner.transfer(&w.t.slab)
	if !w.t.locked {
		// From now on every call takes the slow path, which checks closing.
		w.t.fastEps, w.t.locked, w.t.tagSlow = nil, true, true
		w.t.lock()
	}
	w.t.runCallbacks() // no goroutine progresses the worker any more
	w.t.unlock()
	w.t.ctx.disown(w)
	return err
}

// closeGrace bounds the part of Close that follows the endpoints, which have closeTimeout.
// It closes interfaces and waits for no peer.
const closeGrace = 10 * time.Second

// closeIfaces closes the ifaces and the event descriptors. No iface is active from then on.
func (w *Worker) closeIfaces() error {
	w.t.polling.active, w.t.polling.firstActive, w.t.polling.word = nil, noIface{}, &alwaysReady
	w.t.polling.moreWork = w.t.callbacks.pending()
	p := &w.t.polling
	p.sleeper.unwatch()
	p.wake.stop()
	var errs []error
	if p.slow.set != nil {
		errs = append(errs, p.slow.set.Close(), p.wake.signal.Close())
	}
	for _, wi := range w.t.ifaces {
		if err := wi.iface.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", wi.name(), err))
		}
	}
	return errors.Join(errs...)
}

// Counters of a worker. The path of a single short send counts nothing.
const (
	cntReceived = iota
	cntUnexpected
	cntFragmented
	cntPending
	cntProtocolError
	cntFailures
	cntRndvSent
	cntRndvRequested
	cntRejected
	cntStale
	cntRndvOnly
	cntUnexpectedPeak
	cntUnhandled
	cntDoubleRelease
	cntSlept
	cntRndvRead
	cntZcopy
	cntFailover
	numCounters
)

var counterNames = [numCounters]string{
	cntReceived:      "received",   // active messages received, including fragments
	cntUnexpected:    "unexpected", // messages that arrived before their receive was posted
	cntFragmented:    "fragmented", // messages sent in fragments
	cntPending:       "pending",    // operations that waited for transport resources
	cntProtocolError: "bad",        // messages that violated the protocol, and later ones of the same connection
	cntFailures:      "failures",   // connections that ended

	cntRndvSent:       "announced",       // messages sent by rendezvous
	cntRndvRequested:  "fetched",         // messages of other workers requested
	cntRejected:       "refused",         // messages of other workers rejected
	cntStale:          "late",            // messages for an operation that had completed before
	cntRndvOnly:       "throttled",       // senders put under flow control
	cntUnexpectedPeak: "unexpected_peak", // maximum bytes of unexpected messages held

	cntUnhandled:     "unhandled",      // active messages without a handler, tag messages without FeatureTag
	cntDoubleRelease: "released_twice", // repeated releases of a retained message
	cntRndvRead:      "read",           // messages read from the sender's memory
	cntZcopy:         "zcopy",          // puts and gets without a copy
	cntFailover:      "replaced",       // lane failovers
	cntSlept:         "slept",          // sleeps of a wait
}

// Stats returns the counters of the worker ("ucp.") and of its interfaces
// ("transport/device."). Reading them is safe from any goroutine.
func (w *Worker) Stats() *stats.Group { return &w.t.stats }
