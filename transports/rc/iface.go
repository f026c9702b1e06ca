package rc

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/async"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

// iface is a worker's side of all its connections. It is used inside owner alone: by
// the worker's calls, or by a section of the async goroutine (section.go). Every
// callback comes from Progress.
type iface struct {
	// Receiving.
	recvCQ   verbs.CQ
	srq      verbs.SRQ
	rx       *nic.Slab
	reserve  *nic.Reserve
	batch    int   // receives posted at a time
	last     *pair // whose message came last
	qpns     qpnTable
	posted   int // receives
	target   int // how many shall be
	kept     int // buffers with the layer above
	keepMost int
	stash    []verbs.WC // taken from the receive queue and not looked at
	stashAt  int
	late     []*pair // read now, with messages that came before

	// Sending.
	sendCQ    verbs.CQ
	tx        *nic.Slab
	txTotal   int
	listOf    *queue
	listed    int // of list
	signaled  int // completions that were asked for and have not come
	told      int // events and failures of this pass
	events    int // that are not handed over
	nowhere   queue
	reserved  int // open reservations
	sendStash []verbs.WC
	flushes   flushes

	busy      int // depth of callbacks
	passes    uint32
	attention bool // service has work
	waiting   []*ep
	offerAt   int
	ending    []*ep

	handler uct.Handler
	d       *nic.Domain
	owner   *async.Owner
	thread  *nic.Thread
	pd      verbs.PD
	channel verbs.CompChannel
	ud      datagrams
	self    peer
	place   *nic.PortAddress // of self
	port    uint8
	worker  uct.UUID
	attr    uct.IfaceAttr
	stats   *stats.Set
	group   *stats.Group
	seg     int // longest message with its head

	depth       int // of each connection's queue
	sendDepth   int // of sendCQ
	pairs       int // that hold a queue pair
	queues      int // of them that can be sent in
	timeoutCode uint8
	retryCount  uint8
	maxPairs    int
	keepalive   time.Duration
	retryEvery  time.Duration
	connectFor  time.Duration

	eps      []*ep // by slot
	freeSlot []int
	conns    map[uint64]*ep // by this side's name
	remotes  map[remote]*ep // by the peer's
	byPeer   map[ifaceName][]*ep
	halfOpen nic.HalfOpen[*ep] // accepted and not confirmed, and nobody here uses them
	timed    []*ep             // whose machines have deadlines
	dying    []*pair
	refusals refusals
	nextTend ucs.Time
	looked   ucs.Time // for connections that want a sign of life
	lulled   ucs.Time // and for idle ones

	active   int          // by the layer above
	accepted atomic.Int32 // by peers
	threads  int
	armed    bool // Arm was called: what a section does must wake
	closed   bool
	owned    bool // owner is not closed
	watched  bool // uct.IfaceConfig.Unattended is set
	wake     *nic.Wake
	onAlarm  func(ucs.Time)
	alarm    async.Timer
	alarmAt  ucs.Time // 0: not set

	recvs  [uct.MaxBatch]verbs.WC
	ends   [endBatch]verbs.WC
	ds     [uct.MaxBatch]uct.Desc
	list   [listMax]verbs.SendWR
	refill [refillBatch]verbs.RecvWR
	evs    [uct.MaxBatch]uct.Event
}

// remote names a connection from its peer's side.
type remote struct {
	iface ifaceName
	conn  uint64
}

// openIface opens a worker's interface on a port.
func openIface(d *nic.Domain, port uint8, c uct.IfaceConfig) (uct.Iface, error) {
	s := c.Settings
	place, err := d.PortAddress(port)
	if err != nil {
		return nil, err
	}
	if n := d.Context().Attr().MaxInline; n < verbs.InlineLen {
		return nil, fmt.Errorf("the device takes %d bytes inline in a work request, rc wants %d: %w", n, verbs.InlineLen, ucs.ErrUnsupported)
	}
	f := &iface{
		d: d, port: port, handler: c.Handler, worker: c.Worker, threads: max(c.Threads, 1),
		seg: int(segSize.Get(s)), target: rxQueueLen.Get(s), txTotal: txBufs.Get(s),
		depth:       1 << bits.Len(uint(txQueueLen.Get(s)-1)),
		timeoutCode: timeoutCode(timeout.Get(s)), retryCount: uint8(retryCount.Get(s)),
		maxPairs: maxPairs.Get(s), keepalive: keepalive.Get(s),
		connectFor: connectTimeout.Get(s), retryEvery: min(connectRetry.Get(s), connectTimeout.Get(s)/4),
		conns: map[uint64]*ep{}, remotes: map[remote]*ep{}, byPeer: map[ifaceName][]*ep{},
		stats: stats.NewSet(statNames[:]), group: c.Stats,
		halfOpen: nic.NewHalfOpen[*ep](d.Context().Attr().MaxQP),
	}
	f.self.port = place
	f.place = &f.self.port
	f.depth = min(f.depth, 1<<(bits.Len(uint(d.Context().Attr().MaxQPWR))-1))
	f.target = min(f.target, d.Context().Attr().MaxSRQWR)
	f.batch = min(refillBatch, f.target/4)
	f.keepMost = f.target
	if m := c.Resources.MaxUnexpected; m > 0 {
		f.keepMost = max(min(m/f.seg, f.target), 1)
	}
	f.attr = f.attrOf()
	if err := f.open(c.Lock, c.Unattended); err != nil {
		return nil, errors.Join(err, f.releaseAll())
	}
	return f, nil
}

func (f *iface) attrOf() uct.IfaceAttr {
	most := int(f.d.Context().Attr().MaxMessage)
	whole := f.seg - headLen
	dev := f.d.Context().Attr()
	a := uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpsPut | uct.OpGetBcopy | uct.OpGetZcopy | uct.OpFlushLocal | uct.OpFlushRemote |
			uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:      uct.Limit{Short: maxShort, Bcopy: whole, MaxZcopy: whole - maxHead, MaxVec: maxAMVec, MaxHead: maxHead},
		Put:     uct.Limit{Short: verbs.InlineLen, Bcopy: f.seg, MaxZcopy: most, MaxVec: verbs.MaxSGE},
		Get:     uct.Limit{Bcopy: f.seg, MaxZcopy: most, MaxVec: verbs.MaxSGE},
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend,
		AckMeansPlaced: dev.AckMeansPlaced, PeerFailure: true, FailureWithin: f.failureWithin(), AccessFails: true,
	}
	if dev.Atomic != verbs.AtomicNone {
		a.Ops |= uct.OpAtomics
		a.Post64, a.Fetch64, a.DeviceAtomics = postAtomics, fetchAtomics, dev.Atomic == verbs.AtomicHCA
	}
	// Measured on a 2-vCPU Xeon VM: one-way latency and bandwidth of the UDP link on
	// loopback, and of the in-process link.
	a.Est = uct.Estimate{Dedicated: 4 << 30, LatencyNS: 2200, OverheadNS: 60}
	switch {
	case f.d.Context().Info().Provider != "soft":
		// Source: UCX 1.13's of an adapter of 100 Gb/s.
		a.Est = uct.Estimate{Shared: 12000e6, LatencyNS: 600, LatencyPerEpNS: 1, OverheadNS: 75}
	case f.place.Fabric == nic.FabricProcess:
		a.Est = uct.Estimate{Dedicated: 8 << 30, LatencyNS: 200, OverheadNS: 60}
	}
	return a
}

// failureWithin is how long it takes until a dead peer is asked for a sign of life,
// and has not answered: by what a queue pair repeats, or, where the connection sleeps,
// by connection messages.
func (f *iface) failureWithin() time.Duration {
	if f.keepalive == config.Forever {
		return config.Forever // it is noticed when something is sent
	}
	return f.keepalive*5/4 + max(f.retriesFor(), f.connectFor)
}

// retriesFor is how long a queue pair repeats what has no answer.
func (f *iface) retriesFor() time.Duration {
	return timeoutOf(f.timeoutCode) * time.Duration(f.retryCount+1)
}

// open makes the queues.
func (f *iface) open(lock uct.LockMode, unattended func() time.Duration) (err error) {
	ctx := f.d.Context()
	f.pd = f.d.PD()
	if lock == uct.LockNone {
		if f.thread, err = f.d.NewThread(); err != nil {
			return err
		}
		f.pd = f.thread.PD
	}
	if f.channel, err = ctx.CreateCompChannel(); err != nil {
		return err
	}
	f.sendDepth = min(ctx.Attr().MaxCQE, 4*f.depth)
	if f.wake, err = nic.NewWake(f.channel.FD()); err != nil {
		return err
	}
	c := verbs.CQConfig{Depth: f.target + f.keepMost, Channel: f.channel, Cookie: cookieRecv}
	if f.thread != nil {
		c.Domain = f.pd
	}
	if f.recvCQ, err = ctx.CreateCQ(c); err != nil {
		return err
	}
	c.Depth, c.Cookie = f.sendDepth, cookieSend
	if f.sendCQ, err = ctx.CreateCQ(c); err != nil {
		return err
	}
	// Not in the thread's domain: the reserve posts, too.
	if f.srq, err = f.d.PD().CreateSRQ(verbs.SRQAttr{MaxWR: f.target, MaxSGE: 1}); err != nil {
		return err
	}
	f.rx, f.tx = new(nic.Slab), new(nic.Slab)
	if err = f.ud.open(f); err != nil {
		return err
	}
	f.nowhere.f = f
	f.armed = f.recvCQ.Arm(false) == ucs.OK
	if err = f.openAsync(unattended); err != nil {
		return err
	}
	if f.group != nil {
		return f.group.Add(transportName+"."+f.d.DeviceName(f.port), f.stats)
	}
	return nil
}

// Attr tells what the iface can do.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress is that of the port.
func (f *iface) DeviceAddress(b []byte) []byte {
	a := f.self.address()
	return a.AppendDevice(b)
}

// Address names the iface and its queue pair for connection messages.
func (f *iface) Address(b []byte) []byte {
	a := f.self.address()
	return a.AppendIface(b)
}

// Reachable compares the two ports.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	_, why := f.peerOf(a)
	return why == "", why
}

// peerOf reads an address; why it does not serve.
func (f *iface) peerOf(a uct.Address) (p peer, why string) {
	if err := p.parse(a); err != nil {
		return p, err.Error()
	}
	if ok, why := f.place.Reaches(&p.port); !ok {
		return p, why
	}
	if int(p.iface.seg) < f.seg {
		return p, fmt.Sprintf("peer's receives take %d bytes, messages have up to %d", p.iface.seg, f.seg)
	}
	return p, ""
}

// NewEndpoint takes the connection that the peer made, or prepares one.
func (f *iface) NewEndpoint(a uct.Address, t int) (uct.Endpoint, error) {
	f.enterWait()
	defer f.leave()
	if f.closed {
		return nil, fmt.Errorf("new rc endpoint: iface %w", ucs.ErrClosed)
	}
	if t < 0 || t >= f.threads {
		return nil, fmt.Errorf("new rc endpoint: thread index %d of %d: %w", t, f.threads, ucs.ErrInvalid)
	}
	p, why := f.peerOf(a)
	if why != "" {
		return nil, fmt.Errorf("new rc endpoint: %s: %w", why, ucs.ErrUnreachable)
	}
	for _, e := range f.byPeer[p.iface.name] {
		if e.takeable() {
			e.confirmed() // this side uses it
			e.opened = true
			return e, nil
		}
	}
	e, err := f.newEP(&p)
	if err != nil {
		return nil, fmt.Errorf("new rc endpoint: %w", err)
	}
	e.opened, e.initiated = true, true
	return e, nil
}

// Activate counts an endpoint that the layer above uses.
func (f *iface) Activate() { f.active++ }

// Deactivate ends one Activate.
func (f *iface) Deactivate() { f.active-- }

// ActiveEndpoints counts those and the connections that peers made.
func (f *iface) ActiveEndpoints() int { return f.active + int(f.accepted.Load()) }

// Fence: see Endpoint.Fence.
func (f *iface) Fence() uct.Status {
	f.enterWait()
	defer f.leave()
	if f.closed {
		return ucs.Closed
	}
	for _, e := range f.eps {
		if e != nil {
			e.fence()
		}
	}
	return ucs.OK
}
