package rc

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// iface is one worker's interface on one port, with all its connections.
//
// Concurrency: the worker's calls and the async goroutine's critical sections (async.go)
// exclude each other with owner. Every callback is made from Progress, never from a section.
type iface struct {
	nic.Section // first, so that an operation's call of Enter computes no address

	// Receiving.
	recvCQ      verbs.CQ
	srq         verbs.SRQ
	rx          *nic.Slab
	reserve     *nic.Reserve
	refillSize  int     // receives posted at a time
	lastRecvQP  *connQP // QP of the latest message
	qpns        qpnTable
	postedRecvs int // receives in the SRQ
	recvTarget  int // receives to keep posted
	retained    int // buffers that the layer above retains
	maxRetained int
	drained     []verbs.WC // drained from recvCQ and not processed
	drainedAt   int
	readable    []*connQP // QPs that are read now, with messages in connQP.outOfOrder

	// Sending.
	sendCQ        verbs.CQ
	tx            *nic.Slab
	txTotal       int
	postListQueue *sendQueue
	postListLen   int // entries used in list
	signaled      int // signaled operations without a completion yet
	reports       int // events and failures reported in this pass
	queuedEvents  int // events in evs that are not delivered
	nullQueue     sendQueue
	reserved      int // open reservations
	drainedSends  []verbs.WC
	flushes       flushes

	passes        uint32
	serviceNeeded bool // service has work
	waiting       []*ep
	dispatchAt    int

	conn.Table[ifaceName, *ep]

	handler  uct.Handler
	d        *nic.Domain
	thread   *nic.Thread
	pd       verbs.PD
	channel  verbs.CompChannel
	ud       udQP
	self     peer
	portAddr *nic.PortAddress // port of self
	port     uint8
	worker   uct.UUID
	attr     uct.IfaceAttr
	stats    *stats.Set
	group    *stats.Group
	seg      int // longest message, header included

	depth         int // send slots of a connection
	sendDepth     int // capacity of sendCQ
	numQPs        int // QPs
	numSendQueues int // QPs that have a send queue
	timeoutCode   uint8
	retryCount    uint8
	keepalive     time.Duration
	retryInterval time.Duration
	connectLimit  time.Duration

	byLocalID    map[uint64]*ep    // by the local identifier
	byRemoteID   map[remoteID]*ep  // by the remote identifier
	halfOpen     nic.HalfOpen[*ep] // accepted, not confirmed, and without a local endpoint
	timers       conn.Queue[*ep]   // connections whose machine has a deadline
	draining     []*connQP
	awaiting     []*ep // ended in order by their peers; see awaitACKs
	accessErrors accessErrors
	watcher      nic.Watcher
	nextService  ucs.Time
	keepaliveAt  ucs.Time // last search for connections to probe
	peerChecks   nic.CheckTimer

	armed  bool // Arm was called: a section that did work wakes the worker
	closed bool
	wake   *nic.Wake

	recvWCs   [uct.MaxBatch]verbs.WC
	sendWCs   [sendPollBatch]verbs.WC
	descs     [uct.MaxBatch]uct.Desc
	postList  [postListMax]verbs.SendWR
	refillWRs [refillBatch]verbs.RecvWR
	eventBuf  [uct.MaxBatch]uct.Event
}

// remoteID identifies a connection by its remote interface and remote identifier.
type remoteID struct {
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
		return nil, fmt.Errorf("the device supports %d bytes of inline data, rc needs %d: %w", n, verbs.InlineLen, ucs.ErrUnsupported)
	}
	f := &iface{
		d: d, port: port, handler: c.Handler, worker: c.Worker,
		seg: int(segSize.Get(s)), recvTarget: rxQueueLen.Get(s), txTotal: txBufs.Get(s),
		depth:       1 << bits.Len(uint(txQueueLen.Get(s)-1)),
		timeoutCode: timeoutCode(timeout.Get(s)), retryCount: uint8(retryCount.Get(s)),
		keepalive:    keepalive.Get(s),
		connectLimit: connectTimeout.Get(s), retryInterval: min(connectRetry.Get(s), connectTimeout.Get(s)/4),
		rx: new(nic.Slab), tx: new(nic.Slab),
		byLocalID: map[uint64]*ep{}, byRemoteID: map[remoteID]*ep{},
		stats: stats.NewSet(statNames[:]), group: c.Stats,
		halfOpen: nic.NewHalfOpen[*ep](d.Context().Attr().MaxQP),
	}
	f.timers.Mark = inTimers
	f.Init(conn.Hooks[*ep]{
		Handler: f.handler, Stats: f.stats, Failed: statFailed, Wake: func() { f.serviceNeeded = true },
		Reject: func(e *ep) {
			// Operations on a connection that this side could not open get NoResource until that
			// is reported to the layer above.
			openFailed := e.unused() && !errors.Is(e.Err, ucs.ErrPeerFailed) && !errors.Is(e.Err, ucs.ErrCanceled)
			if e.status == ucs.OK && !openFailed {
				e.rejectOps(laterStatus(e.Err))
			}
		},
		Active: f.activeConns, Limit: maxQPs.Get(s),
		Uses: func(e *ep) (uint64, bool) {
			if e.txQueue == nil {
				return uint64(e.received), false
			}
			e.requestCompletion() // for unsignaled operations in flight, so that it may become idle
			return uint64(e.txQueue.tail + e.received), e.M.Quiescent() && !e.hasPending()
		},
	})
	f.self.port = place
	f.portAddr = &f.self.port
	f.depth = min(f.depth, 1<<(bits.Len(uint(d.Context().Attr().MaxQPWR))-1))
	f.recvTarget = min(f.recvTarget, d.Context().Attr().MaxSRQWR)
	f.refillSize = min(refillBatch, f.recvTarget/4)
	f.maxRetained = f.recvTarget
	if m := c.Resources.MaxUnexpected; m > 0 {
		f.maxRetained = max(min(m/f.seg, f.recvTarget), 1)
	}
	// The longest time until the failure of a peer is detected is the keepalive interval, plus the
	// retries of a QP or, for a suspended connection, of its connection messages.
	failureWithin := config.Forever // a dead peer is detected only by a send
	if f.keepalive != config.Forever {
		failureWithin = f.keepalive*5/4 + max(f.retryTime(), f.connectLimit)
	}
	dev := d.Context().Attr()
	maxMessage, maxPayload := int(dev.MaxMessage), f.seg-headerLen
	f.attr = uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpsPut | uct.OpGetBcopy | uct.OpGetZcopy | uct.OpFlushLocal | uct.OpFlushRemote |
			uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:      uct.Limit{Short: maxShort, Bcopy: maxPayload, MaxZcopy: maxPayload - maxHeader, MaxVec: maxAMVec, MaxHeader: maxHeader},
		Put:     uct.Limit{Short: verbs.InlineLen, Bcopy: f.seg, MaxZcopy: maxMessage, MaxVec: verbs.MaxSGE},
		Get:     uct.Limit{Bcopy: f.seg, MaxZcopy: maxMessage, MaxVec: verbs.MaxSGE},
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend, MaxConnections: maxQPs.Get(s),
		AckMeansPlaced: dev.AckMeansPlaced, PeerFailure: true, FailureWithin: failureWithin, AccessErrorFatal: true,
	}
	if dev.Atomic != verbs.AtomicNone {
		f.attr.Ops |= uct.OpAtomics
		f.attr.Post64, f.attr.Fetch64, f.attr.DeviceAtomics = postAtomics, fetchAtomics, dev.Atomic == verbs.AtomicHCA
	}
	// Measured on a 2-vCPU Xeon VM: one-way latency and bandwidth of the UDP link on loopback,
	// and of the in-process link.
	f.attr.Estimate = uct.Estimate{Dedicated: 4 << 30, LatencyNS: 2200, OverheadNS: 60}
	switch {
	case d.Context().Info().Provider != "soft":
		// Source: estimates of UCX 1.13 for a 100 Gb/s adapter.
		f.attr.Estimate = uct.Estimate{Shared: 12000e6, LatencyNS: 600, LatencyPerEpNS: 1, OverheadNS: 75}
	case f.portAddr.Fabric == nic.FabricProcess:
		f.attr.Estimate = uct.Estimate{Dedicated: 8 << 30, LatencyNS: 200, OverheadNS: 60}
	}
	if err := f.open(c.Resources, c.Unattended); err != nil {
		return nil, errors.Join(err, f.releaseAll())
	}
	return f, nil
}

// retryTime returns how long a QP retransmits a packet that gets no ACK.
func (f *iface) retryTime() time.Duration {
	return timeoutOf(f.timeoutCode) * time.Duration(f.retryCount+1)
}

// open creates the interface's verbs objects and registers it with the async goroutine.
func (f *iface) open(r uct.Resources, unattended func() time.Duration) (err error) {
	ctx := f.d.Context()
	if f.thread, err = f.d.NewThread(r); err != nil {
		return err
	}
	f.pd = f.thread.PD
	if f.channel, err = ctx.CreateCompChannel(); err != nil {
		return err
	}
	f.sendDepth = min(ctx.Attr().MaxCQE, 4*f.depth)
	if f.wake, err = nic.NewWake(f.channel.FD()); err != nil {
		return err
	}
	c := verbs.CQConfig{Depth: f.recvTarget + f.maxRetained, Channel: f.channel, Cookie: cookieRecv, Domain: f.pd}
	if f.recvCQ, err = ctx.CreateCQ(c); err != nil {
		return err
	}
	c.Depth, c.Cookie = f.sendDepth, cookieSend
	if f.sendCQ, err = ctx.CreateCQ(c); err != nil {
		return err
	}
	// The SRQ takes locks: the async goroutine posts to it, too.
	if f.srq, err = f.d.PD().CreateSRQ(verbs.SRQAttr{MaxWR: f.recvTarget, MaxSGE: 1}); err != nil {
		return err
	}
	if err = f.ud.open(f); err != nil {
		return err
	}
	f.nullQueue.f = f
	f.watcher = nic.Watcher{OnQPError: f.onQPError, OnFailure: f.NoteDeviceFailure}
	f.armed = f.recvCQ.Arm(false) == ucs.OK
	err = f.OpenSection(nic.SectionConfig{
		FD: f.channel.FD(), Unattended: unattended, Run: f.runSection,
		Arm: func() { f.ud.poll(1) },
	})
	if err != nil && !errors.Is(err, ucs.ErrUnsupported) { // without events, connections are opened in Progress only
		return err
	}
	if f.group != nil {
		return f.group.Add(transportName+"."+f.d.DeviceName(f.port), f.stats)
	}
	return nil
}

// Attr returns the attributes of the iface.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress appends the address of the port.
func (f *iface) DeviceAddress(b []byte) []byte {
	a := f.self.address()
	return a.AppendDevice(b)
}

// Address appends the address of the iface, with its QP for connection messages.
func (f *iface) Address(b []byte) []byte {
	a := f.self.address()
	return a.AppendIface(b)
}

// Reachable reports whether the peer's port can be reached from this one, and why not.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	_, why := f.parsePeer(a)
	return why == "", why
}

// parsePeer decodes an address. A non-empty why is the reason why the peer cannot be used.
func (f *iface) parsePeer(a uct.Address) (p peer, why string) {
	if err := p.parse(a); err != nil {
		return p, err.Error()
	}
	if ok, why := f.portAddr.Reaches(&p.port); !ok {
		return p, why
	}
	if int(p.iface.seg) < f.seg {
		return p, fmt.Sprintf("peer's receives take %d bytes, messages have up to %d", p.iface.seg, f.seg)
	}
	return p, ""
}

// NewEndpoint uses a connection that the peer opened, or adds a new one. The new one gets a QP
// when it is first used.
func (f *iface) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	f.EnterWait()
	defer f.Leave()
	if f.closed {
		return nil, fmt.Errorf("new rc endpoint: iface %w", ucs.ErrClosed)
	}
	p, why := f.parsePeer(a)
	if why != "" {
		return nil, fmt.Errorf("new rc endpoint: %s: %w", why, ucs.ErrUnreachable)
	}
	for _, e := range f.ByPeer[p.iface.name] {
		if e.Adoptable() && e.M.State() == machine.StateOpen && int(e.peer.iface.seg) >= f.seg {
			e.confirm()
			e.Add(conn.Opened)
			return e, nil
		}
	}
	e, err := f.newEP(&p)
	if err != nil {
		return nil, fmt.Errorf("new rc endpoint: %w", err)
	}
	e.Add(conn.Opened | conn.Initiated)
	return e, nil
}

// Fence calls Endpoint.Fence for all connections.
func (f *iface) Fence() uct.Status {
	f.EnterWait()
	defer f.Leave()
	if f.closed {
		return ucs.Closed
	}
	for _, e := range f.Slots {
		if e != nil {
			e.fence()
		}
	}
	return ucs.OK
}
