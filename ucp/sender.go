package ucp

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup"
)

// Thread is a sender below a worker, for a goroutine that communicates without locks and without
// waiting for others. It has its own requests, lanes and interfaces, which are opened when it first
// uses them. Messages that it sends come from its worker: a reply through AM.From leads there.
//
// Endpoints and remote keys are those of the worker: [Endpoint.On] and [RemoteKey.On] return them for
// a Thread. Receives, probes and handlers stay the worker's.
//
// Operations of one Thread have the order of those of a worker. Between Threads, and between a
// Thread and its worker, there is none; a flush orders puts, gets and atomics (docs/ordering.md).
//
// One goroutine at a time uses a Thread, its endpoints, keys and requests. A wait for one of its
// requests progresses the Thread alone; its worker does not progress it, and Worker.Flush does not
// cover it. While no goroutine progresses it, operations that wait for a connection, for room or for
// the receiver make no progress. ucx_info --live lists such a Thread as not responsive.
type Thread struct {
	worker *Worker
	number int // from 0 on, among the open Threads of the worker
	plan   threadPlan
	own    *Worker // its requests, lanes and ifaces; nil: it was not used yet
	keys   map[*RemoteKey]*RemoteKey
	closed bool
}

// NewThread creates a Thread, with the resources that WorkerConfig.Sharing plans for it. It opens nothing but
// a device context, if the policy plans one for the Thread (mpi-everywhere): the first operation on an endpoint
// opens the rest. With other modes than ThreadMulti the worker's goroutine calls it.
//
// Errors: ErrClosed; those of the policy; ErrInvalid for a policy by which Threads share queue pairs
// (mpi-threads) if the worker is not ThreadMulti; that of the device if it opens no further context.
func (w *Worker) NewThread() (*Thread, error) {
	w.t.lock()
	defer w.t.unlock()
	if w.t.life.closing() {
		return nil, fmt.Errorf("new thread: %w", ErrClosed)
	}
	if w.threads == nil {
		w.threads = new(threadSet)
		w.t.publish.mu = new(sync.Mutex)
	}
	t := &Thread{worker: w}
	if err := w.threads.add(t); err != nil {
		return nil, fmt.Errorf("new thread: %w", err)
	}
	return t, nil
}

// state returns the part of t that endpoints refer to, and creates it if needed.
func (t *Thread) state() *thread {
	if t.own == nil {
		if t.closed {
			return closedThread
		}
		t.own = t.worker.newSender(&t.plan)
	}
	return &t.own.t
}

// Progress does bounded work, as Worker.Progress: it handles events and resumes the Thread's pending
// operations. It returns the number of items handled.
func (t *Thread) Progress() int {
	if t.plan.shared && !t.closed {
		return t.worker.Progress()
	}
	if t.own == nil {
		return 0
	}
	return t.own.Progress()
}

// Flush completes when all operations posted before through t have completed, as Worker.Flush.
func (t *Thread) Flush() Request {
	if t.plan.shared && !t.closed {
		return t.worker.Flush()
	}
	if t.own == nil {
		return Request{}
	}
	return t.own.Flush()
}

// Fence orders the operations that t posted to each peer before it against those after it, as Worker.Fence.
func (t *Thread) Fence() {
	if t.plan.shared && !t.closed {
		t.worker.Fence()
		return
	}
	if t.own != nil {
		t.own.Fence()
	}
}

// Close flushes what was posted through t, within CloseTimeout, and releases its resources. Later operations
// through t return ErrClosed. Close is idempotent. Worker.Close closes its Threads; no goroutine
// may use them then.
func (t *Thread) Close() error {
	if t.closed {
		return nil
	}
	t.closed = true
	t.worker.threads.remove(t)
	if t.plan.shared {
		_, err := t.worker.t.flushAlive().waitBounded()
		return err
	}
	var err error
	if t.own != nil {
		err = t.own.Close()
	}
	return errors.Join(err, t.worker.threads.leave(t.plan.context))
}

// On returns e for use through t, a Thread of the worker that e belongs to. t allocates nothing for e
// before its first operation on it. The result is comparable, and equal for each call with the same t.
//
// A Thread that has used e keeps its connection until the result or t is closed, also if e is closed.
// One that has not gets ErrClosed then. For a Thread of another worker operations on the result fail
// with ErrInvalid.
func (e Endpoint) On(t *Thread) Endpoint {
	if t.plan.shared && !t.closed && e.t == &t.worker.t {
		return e
	}
	s := t.state()
	if e.t == nil || s == closedThread {
		return Endpoint{s, e.id}
	}
	if e.t != s.parent && e.t.parent != s.parent {
		return Endpoint{s, foreignEndpoint}
	}
	return Endpoint{s, e.id}
}

// foreignEndpoint is the id of an endpoint on a Thread of another worker.
const foreignEndpoint = 1<<32 - 1

// On returns k for use through t, a Thread of k's worker. The first call for t resolves the key as
// Endpoint.UnpackKey does; later ones return the same. The goroutine that uses t calls it. If the key cannot be resolved,
// operations on the result fail with the reason.
//
// Close of the result, or of t, releases what t has for k.
func (k *RemoteKey) On(t *Thread) *RemoteKey {
	if k == nil {
		return nil
	}
	if t.plan.shared && !t.closed && k.t == &t.worker.t {
		return k
	}
	if own := t.keys[k]; own != nil && !own.closed {
		return own
	}
	own, err := k.e.On(t).UnpackKey(k.packed)
	switch {
	case errors.Is(err, ErrClosed):
		own = &RemoteKey{t: t.state(), e: k.e.On(t), amo: slowAtomics{}, words: slowAtomics{}, closed: true}
	case err != nil:
		own = &RemoteKey{t: t.state(), e: k.e.On(t), size: k.size, base: k.base, amo: slowAtomics{}, words: slowAtomics{}, failed: err}
	}
	if t.keys == nil {
		t.keys = make(map[*RemoteKey]*RemoteKey)
	}
	t.keys[k] = own
	return own
}

// newSender returns the state of a Thread of w, planned by p. Its ifaces are those of w, not open yet.
func (w *Worker) newSender(p *threadPlan) *Worker {
	x := w.t.ctx
	mode := ThreadSingle
	if debugThreads {
		mode = ThreadMulti
	}
	s := x.newWorker(mode)
	s.t.parent = &w.t
	s.t.owner.setOfThread()
	s.t.refused = w.t.refused
	for i, of := range w.t.ifaces {
		wi := &workerIface{t: &s.t, info: of.info, domain: of.domain, index: i, rxConns: make(map[uint32]*rxConn)}
		wi.iface = &unopenedIface{Iface: of.iface, of: wi, resources: p.resources}
		s.t.ifaces = append(s.t.ifaces, wi)
		local := w.t.locals[i]
		local.Iface = wi.iface
		if p.context != nil && p.context.domains[i].Domain != nil {
			wi.domain, local.Domain = p.context.domains[i], threadDomain-i
		}
		s.t.locals = append(s.t.locals, local)
	}
	s.t.openPolling(s.t.ifaces, w.spin)
	if x.own(s) != nil { // the context is closing
		_ = s.Close()
	}
	return s
}

// threadDomain is the highest number of a domain in an address. From it down domains that were opened for a
// Thread are numbered, so that they have none of a memory's regions.
const threadDomain = 255

// isOpen reports whether the iface is open. Those of a Thread open with their first endpoint.
func (wi *workerIface) isOpen() bool {
	_, unopened := wi.iface.(*unopenedIface)
	return !unopened
}

// unopenedIface takes the place of a Thread's iface that has no endpoint yet. What does not change,
// attributes and reachability, is that of its worker's iface.
type unopenedIface struct {
	uct.Iface
	of        *workerIface
	resources uct.Resources
}

// NewEndpoint opens the iface.
func (u *unopenedIface) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	if err := u.of.open(u.resources); err != nil {
		return nil, err
	}
	return u.of.iface.NewEndpoint(a)
}

// Reachable refuses self, which reaches only its own worker.
func (u *unopenedIface) Reachable(a uct.Address) (bool, string) {
	if u.of.info.Kind == uct.DeviceSelf {
		return false, "does not reach its worker from a thread"
	}
	return u.Iface.Reachable(a)
}

func (*unopenedIface) Progress(int) int             { return 0 }
func (*unopenedIface) Release([]uint64)             {}
func (*unopenedIface) Disconnect(uint32)            {}
func (*unopenedIface) EventFD() int                 { return -1 }
func (*unopenedIface) Arm(uct.EventKind) uct.Status { return ucs.OK }
func (*unopenedIface) Activate()                    {}
func (*unopenedIface) Deactivate()                  {}
func (*unopenedIface) ActiveEndpoints() int         { return 0 }
func (*unopenedIface) Flush(uct.Token) uct.Status   { return ucs.OK }
func (*unopenedIface) Fence() uct.Status            { return ucs.OK }
func (*unopenedIface) Close() error                 { return nil }

// open opens the iface of a Thread. For its peers the iface is a worker of its own, with one iface,
// whose messages come from the Thread's worker.
func (wi *workerIface) open(r uct.Resources) error {
	w := wi.t
	id := newWorkerID()
	f, err := wi.domain.OpenIface(wi.info, uct.IfaceConfig{
		Handler: wi, Worker: id, Settings: w.ctx.settings, Wants: w.ctx.features.wants(), Stats: &w.stats, Resources: r,
	})
	if err != nil {
		return err
	}
	local := &w.locals[wi.index]
	local.Iface = f
	a, refused, err := wireup.Build(w.ctx.view(id, wireup.FeatureAbort|wireup.FeatureThread), []wireup.LocalIface{*local})
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("%s: %w", refused[0].Reason, ErrInvalid)
	}
	if err != nil {
		_ = f.Close() // without an endpoint
		return err
	}
	wi.address = append(a, w.parent.address...)
	wi.setIface(f)
	w.polling.watch(wi)
	return nil
}

// attach adds the worker's endpoint with that index and generation to the table of a Thread. It returns
// 0 if that endpoint is closed.
func (w *thread) attach(k, gen uint32) uint32 {
	of := w.parent
	of.publish.lock()
	var addr []byte
	if k != 0 && int(k) < len(of.eps) && of.eps[k].gen == gen {
		addr, _ = of.peers.View(of.eps[k].peer).Append(nil) // it was decoded from an address
	}
	of.publish.unlock()
	if addr == nil {
		return 0
	}
	if int(k) < len(w.eps) && w.eps[k].state != epFree { // the worker has closed its endpoint, whose index another one got
		w.abort(k, ErrCanceled, nil)
		w.detach(k)
		w.freeEndpoint(k)
	}
	if n := int(k) + 1 - len(w.eps); n > 0 {
		w.eps = append(w.eps, make([]epSlot, n)...)
		w.fastEps = w.eps
	}
	peer, err := w.addPeer(addr)
	if err != nil {
		return 0
	}
	w.enterEndpoint(k, epIdle)
	w.eps[k].gen, w.eps[k].peer = gen, peer
	return k
}

// publishLock guards the endpoints and peers of a worker against its Threads, which read them. A
// worker without Threads needs no lock.
type publishLock struct{ mu *sync.Mutex }

func (l publishLock) lock() {
	if l.mu != nil {
		l.mu.Lock()
	}
}

func (l publishLock) unlock() {
	if l.mu != nil {
		l.mu.Unlock()
	}
}

// addPeer adds a reference to the peer with address a.
func (w *thread) addPeer(a []byte) (wireup.PeerID, error) {
	w.publish.lock()
	defer w.publish.unlock()
	return w.peers.Add(a)
}

// retainPeer adds a reference to peer, and returns peer.
func (w *thread) retainPeer(peer wireup.PeerID) wireup.PeerID {
	w.publish.lock()
	w.peers.Retain(peer)
	w.publish.unlock()
	return peer
}

// releasePeer drops a reference to peer; 0 is none.
func (w *thread) releasePeer(peer wireup.PeerID) {
	if peer == 0 {
		return
	}
	w.publish.lock()
	w.peers.Release(peer)
	w.publish.unlock()
}
