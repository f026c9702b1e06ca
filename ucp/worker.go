package ucp

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/ucp/tagmatch"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/platform"
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
	// Spin is how long a wait polls before it sleeps. 0: the setting UCX_SPIN_TIME. A
	// negative Spin means that a wait never sleeps.
	Spin time.Duration
}

// Worker owns progress. Its endpoints, requests and received messages belong to it.
// With ThreadMulti its methods and those of its Endpoints and Requests are safe for use
// from any goroutine. With other modes only one goroutine at a time may use them.
// Signal is always safe.
type Worker struct {
	t              thread
	firstActive    progresser // the first active iface, or idle
	moreWork       bool       // a pass has more to do than to progress one
	passes         uint32     // since the last call of doPeriodic
	ctxCheckPasses uint32     // number of passes after which a wait looks at its context and the time

	slab            slab
	posted          tagmatch.Posted
	unexpQueue      tagmatch.Unexpected
	unexpected      []unexpected // unexpected messages, by their id in arrived
	rxConns         []*rxConn    // by rxConn.index; 0 is none
	freeRxConns     []uint32
	numDraining     int           // lanes in laneDraining
	serviceInterval time.Duration // longest sleep while ifaces are active; 0: no limit
	fences          int           // fences over several lanes in progress
	fenced          []uint32
	flushed         bool   // its context, which is closing, has flushed it
	flushErr        error  // result of that flush
	rejecting       bool   // unmatched messages are refused, because the worker is closing
	rndvThresh      uint64 // longest message that is sent eagerly
	zcopyFrom       zcopyFrom
	maxCredits      uint32 // send credits of each lane
	budget          budget
	scratch         [64]byte // a short message that is being sent
	am              amState
	emul            emulOps
	pool            pool // memory of unexpected messages and of inline copies

	mu          spinLock // with ThreadMulti, guards all fields above and below
	mode        ThreadMode
	owner       progressOwner
	cores       int
	lockWaiters atomic.Int32  // goroutines that wait for mu to post; passes let them go first
	granted     atomic.Uint32 // number of times that such a goroutine got mu
	ctx         *Context
	id          uct.UUID
	ifaces      []*workerIface
	locals      []wireup.LocalIface // ports as lane selection sees them
	refused     []uct.Refusal
	active      []progresser
	address     Address
	peers       wireup.Table
	laneOf      map[wireup.PeerID]uint32 // first lane of each peer that has one
	laneFree    uint32
	eps         []epSlot
	epFree      uint32
	cold        map[uint32]*epCold

	dueCallbacks []dueCallback // callbacks that are due
	inOnFailure  Endpoint      // endpoint whose OnFailure is running
	inCallbacks  bool

	resuming           bool // HandlePending or tryResumeLane is running
	unreportedRefusals int  // upper bound of the refused transfers that no flush has reported

	unreported []uint64 // operations that complete when a failure is reported; see fail_report.go

	show      *display // nil: the worker publishes no live statistics
	slow      slowPoll
	wake      wakeup
	sleeper   sleeper
	count     *stats.Set
	stats     stats.Group
	eviction  idleEviction
	eager     bool // endpoints connect when they are created
	closing   bool
	closeDone chan struct{} // closed when Close returns, with ThreadMulti
	closed    atomic.Bool
}

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
	w := &Worker{
		ctx: x, id: newWorkerID(), firstActive: noIface{},
		laneOf:  make(map[wireup.PeerID]uint32),
		cold:    make(map[uint32]*epCold),
		rxConns: make([]*rxConn, 1),
		eps:     make([]epSlot, 1),
		count:   stats.NewSet(counterNames[:]),
		show:    x.newDisplay(c.Mode),
		mode:    c.Mode,
	}
	_ = w.stats.Add("ucp", w.count) // the first, so its name is not taken
	w.t = thread{w: w, lanes: []lane{{laneLife: closedLane}}, locked: c.Mode == ThreadMulti}
	w.slab.init(&w.pool)
	w.am.init(w, c.Mode == ThreadMulti)
	w.slow.init(x.settings)
	w.initTags(c)
	w.openIfaces(domains)
	if len(w.ifaces) == 0 {
		return nil, fmt.Errorf("new worker: no interface works%s: %w", reasons(w.refused), ErrUnsupported)
	}
	w.wake.problem = w.openWakeup()
	w.initSleep(c.Spin)
	w.initEviction()
	w.eager = rowConnect.Get(x.settings) == "eager"
	w.cores = runtime.GOMAXPROCS(0)
	if err = w.buildAddress(); err == nil {
		err = x.own(w)
	}
	if err != nil {
		return nil, fmt.Errorf("new worker: %w", errors.Join(err, w.closeIfaces()))
	}
	return w, nil
}

// openIfaces opens the usable ifaces of every domain. It records the others in w.refused
// with their reasons.
func (w *Worker) openIfaces(domains []openDomain) {
	w.refused = append(w.refused, w.ctx.refused...)
	var all []uct.IfaceInfo
	for n, d := range domains {
		infos, refused := d.Ifaces()
		all = append(all, infos...)
		w.refused = append(w.refused, refused...)
		for _, i := range infos {
			if err := w.openIface(d, n, i); err != nil {
				w.refused = append(w.refused, uct.Refusal{Transport: i.Transport, Device: i.Device, Reason: err.Error()})
			}
		}
	}
	absent := w.ctx.selection.Absent(all)
	w.refused = append(w.refused, absent...)
	w.ctx.absent.Do(func() {
		for _, r := range absent {
			w.ctx.log.Warn(r.String())
		}
	})
}

func (w *Worker) openIface(d openDomain, number int, info uct.IfaceInfo) error {
	if use, reason := w.ctx.selection.Iface(info); use != wireup.UseAll {
		return errors.New(reason)
	}
	wi := &workerIface{w: w, info: info, domain: d, index: len(w.ifaces), rxConns: make(map[uint32]*rxConn)}
	f, err := d.OpenIface(info, uct.IfaceConfig{
		Handler: wi, Worker: w.id, Settings: w.ctx.settings, Wants: w.ctx.features.wants(),
		Stats: &w.stats, Resources: uct.Resources{MaxUnexpected: int(min(max(w.budget.limit, 1), math.MaxInt))},
		Unattended: wi.unattended(w.mode),
	})
	if err != nil {
		return err
	}
	wi.iface = f
	w.ifaces = append(w.ifaces, wi)
	w.locals = append(w.locals, wireup.LocalIface{Info: info, Attr: f.Attr(), Domain: number, Iface: f})
	return nil
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

func (w *Worker) buildAddress() error {
	a, refused, err := wireup.Build(wireup.View{
		Host: platform.HostID(), Process: w.ctx.id.Process, Context: w.ctx.id.Context, Worker: w.id,
	}, w.locals)
	w.address = a
	w.refused = append(w.refused, refused...)
	return err
}

// Refused returns the transports and devices that the worker does not use, each
// with its reason.
func (w *Worker) Refused() []uct.Refusal { return append([]uct.Refusal(nil), w.refused...) }

// Mode returns the thread mode of the worker.
func (w *Worker) Mode() ThreadMode { return w.mode }

// Address returns a copy of the worker's address, with which peers reach it. It is plain
// bytes that the program may send by any means. It is valid while w is open.
func (w *Worker) Address() Address { return append(Address(nil), w.address...) }

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
	if w.closing {
		gone := w.closeDone
		w.t.unlock()
		return w.awaitClose(gone)
	}
	w.closing = true
	if w.am.multi { // with other modes no goroutine waits for it
		w.closeDone = make(chan struct{})
		defer close(w.closeDone)
	}
	w.t.unlock()
	err := w.closeEndpoints()
	w.t.lock()
	if !w.acquireProgress() {
		w.t.unlock()
		return fmt.Errorf("close worker: %w", errors.Join(err, errCallbackRuns))
	}
	w.endAll(ucs.Closed)
	w.closed.Store(true)
	err = errors.Join(err, w.closeIfaces())
	w.endIdleWaits()
	if !w.t.locked {
		// From now on every call takes the slow path, which checks closing.
		w.t.eps, w.t.locked = nil, true
		w.t.lock()
	}
	w.runCallbacks() // no goroutine progresses the worker any more
	w.t.unlock()
	w.ctx.disown(w)
	return err
}

// closeGrace bounds the part of Close that follows the endpoints, which have closeTimeout.
// It closes interfaces and waits for no peer.
const closeGrace = 10 * time.Second

// awaitClose waits for the Close that another goroutine has called before.
func (w *Worker) awaitClose(gone <-chan struct{}) error {
	if gone == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout+closeGrace)
	defer cancel()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close worker: another goroutine is closing it: %w", ErrTimeout)
	}
}

// closeIfaces closes the ifaces and the event descriptors. No iface is active from then on.
func (w *Worker) closeIfaces() error {
	w.active, w.firstActive = nil, noIface{}
	w.updateMoreWork()
	errs := []error{w.closeWakeup()}
	for _, wi := range w.ifaces {
		if err := wi.iface.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", wi.name(), err))
		}
	}
	return errors.Join(errs...)
}
