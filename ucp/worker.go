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
	// ThreadMulti: any goroutine, any time; one lock.
	ThreadMulti ThreadMode = iota
	// ThreadSerialized: any goroutine, one at a time; the program sees to it.
	ThreadSerialized
	// ThreadSingle: one goroutine.
	ThreadSingle
)

// WorkerConfig is what a worker is made with. The zero value works.
type WorkerConfig struct {
	// Mode says which goroutines may use the worker; 0: any.
	Mode ThreadMode
	// UnexpectedBudget is how many bytes of messages that nobody asked for are
	// kept before senders announce what they have and keep it themselves. 0: the
	// setting UCX_UNEXPECTED_BUDGET. A negative value is ErrInvalid.
	UnexpectedBudget int
	// Spin is how long a wait polls before it sleeps. 0: as the setting
	// UCX_SPIN_TIME says; < 0: it never sleeps.
	Spin time.Duration
}

// Worker owns progress: endpoints, requests and what arrives belong to it. With
// ThreadMulti its methods and those of its Endpoints and Requests are safe from
// any goroutine, else one goroutine at a time uses them; Signal is always safe.
type Worker struct {
	t      Thread
	one    progresser // the first active iface, or idle
	odd    bool       // progress has more to do than one
	passes uint32     // since the last look beyond the active ifaces
	looks  uint32     // after so many passes a wait looks beyond its worker

	slab        slab
	posted      tagmatch.Posted
	arrived     tagmatch.Arrived
	un          []unexpected // by number in arrived
	sources     []*source    // by source.index; 0 is none
	freeSources []uint32
	lingering   int           // lanes that linger
	tendEvery   time.Duration // how long a sleeper may leave active ifaces alone; 0: for ever
	fences      int           // of several lanes, under way
	fenced      []uint32
	flushed     bool   // by its context, which closes
	flushErr    error  // of that
	refusing    bool   // what nobody waits for is refused: the worker closes
	rndvThresh  uint64 // longest message that is sent without being asked for
	zcopyFrom   zcopyFrom
	outstanding uint32 // credits of a lane
	budget      budget
	scratch     [64]byte // of a short message on its way out
	am          amState
	sw          swOps
	pool        pool // memory for unexpected payloads and inline copies

	mu       spinLock // with ThreadMulti guards everything below and above
	mode     ThreadMode
	baton    baton
	cores    int
	want     atomic.Int32  // goroutines that wait for mu to post; passes give way
	granted  atomic.Uint32 // how often such a one has had mu
	ctx      *Context
	id       uct.UUID
	ports    []*port
	locals   []wireup.LocalIface // ports as lane choice sees them
	refused  []uct.Refusal
	active   []progresser
	address  Address
	peers    wireup.Table
	laneOf   map[wireup.PeerID]uint32 // the first lane of each peer that has any
	laneFree uint32
	eps      []epSlot
	epFree   uint32
	cold     map[uint32]*epCold

	calls   []call   // due callbacks
	telling Endpoint // its OnFailure runs
	calling bool

	resuming bool // HandlePending runs
	unread   int  // refused transfers that no flush has reported, at most

	unreported []uint64 // operations that end with the report of a failure: reason.go

	show    *display // nil: the program is not shown
	slow    slowEvents
	wake    wakeup
	sleeper sleeper
	count   *stats.Set
	stats   stats.Group
	lulls   lulls
	eager   bool // endpoints connect when they are made
	closing bool
	gone    chan struct{} // closed at the end of Close, with ThreadMulti
	closed  atomic.Bool
}

// NewWorker makes a worker with an iface on every usable device.
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
		ctx: x, id: newID(), one: idle{},
		laneOf:  make(map[wireup.PeerID]uint32),
		cold:    make(map[uint32]*epCold),
		sources: make([]*source, 1),
		eps:     make([]epSlot, 1),
		count:   stats.NewSet(counterNames[:]),
		show:    x.newDisplay(c.Mode),
		mode:    c.Mode,
	}
	_ = w.stats.Add("ucp", w.count) // the first: its name is free
	w.t = Thread{w: w, lanes: []lane{{short: -1}}, locked: c.Mode == ThreadMulti}
	w.slab.init(&w.pool)
	w.am.init(w, c.Mode == ThreadMulti)
	w.slow.init(x.settings)
	w.initTags(c)
	w.openIfaces(domains)
	if len(w.ports) == 0 {
		return nil, fmt.Errorf("new worker: no interface works%s: %w", reasons(w.refused), ErrUnsupported)
	}
	w.wake.problem = w.openWakeup()
	w.initSleep(c.Spin)
	w.initLulls()
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

// openIfaces opens what works of every domain; the rest is refused by reason.
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
	p := &port{w: w, info: info, domain: d, index: len(w.ports), sources: make(map[uint32]*source)}
	f, err := d.OpenIface(info, uct.IfaceConfig{
		Handler: p, Worker: w.id, Settings: w.ctx.settings, Wants: w.ctx.features.wants(),
		Stats: &w.stats, Resources: uct.Resources{MaxUnexpected: int(min(max(w.budget.limit, 1), math.MaxInt))},
		Unattended: p.unattended(w.mode),
	})
	if err != nil {
		return err
	}
	p.iface = f
	w.ports = append(w.ports, p)
	w.locals = append(w.locals, wireup.LocalIface{Info: info, Attr: f.Attr(), Domain: number, Iface: f})
	return nil
}

// wants are the operations that the features need.
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

// Refused lists the transports and devices that the worker does not use, each
// with its reason.
func (w *Worker) Refused() []uct.Refusal { return append([]uct.Refusal(nil), w.refused...) }

// Mode says which goroutines may use the worker.
func (w *Worker) Mode() ThreadMode { return w.mode }

// Address is how peers reach this worker, as a copy: plain bytes to be carried by
// any means. Valid while w is open.
func (w *Worker) Address() Address { return append(Address(nil), w.address...) }

// Close closes the endpoints, each flushed within CloseTimeout, then the ifaces.
// What still runs ends with ErrClosed. Idempotent: with ThreadMulti a second Close
// waits for the first, for at most twice CloseTimeout, then ErrTimeout.
func (w *Worker) Close() error {
	w.t.lock()
	if err := w.mayClose(); err != nil {
		w.t.unlock()
		return fmt.Errorf("close worker: %w", err)
	}
	if w.closing {
		gone := w.gone
		w.t.unlock()
		return w.awaitGone(gone)
	}
	w.closing = true
	if w.am.multi { // else nobody waits for it
		w.gone = make(chan struct{})
		defer close(w.gone)
	}
	w.t.unlock()
	err := w.closeEndpoints()
	w.t.lock()
	if !w.seize() {
		w.t.unlock()
		return fmt.Errorf("close worker: %w", errors.Join(err, errStuck))
	}
	w.endAll(ucs.Closed)
	w.closed.Store(true)
	err = errors.Join(err, w.closeIfaces())
	w.dismiss()
	if !w.t.locked {
		// From now on every call takes the slow half, which looks at closing.
		w.t.eps, w.t.locked = nil, true
		w.t.lock()
	}
	w.runCalls() // nobody progresses any more
	w.t.unlock()
	w.ctx.disown(w)
	return err
}

// closeGrace is how long all of a Close takes at most, but for its endpoints, which
// have closeTimeout: it closes interfaces, and waits for nobody.
const closeGrace = 10 * time.Second

// awaitGone waits for the Close that another goroutine has called before.
func (w *Worker) awaitGone(gone <-chan struct{}) error {
	if gone == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.ctx.closeTimeout+closeGrace)
	defer cancel()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close worker: it is being closed elsewhere: %w", ErrTimeout)
	}
}

func (w *Worker) closeIfaces() error {
	w.active, w.one = nil, idle{}
	w.settle()
	errs := []error{w.closeWakeup()}
	for _, p := range w.ports {
		if err := p.iface.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", p.name(), err))
		}
	}
	return errors.Join(errs...)
}
