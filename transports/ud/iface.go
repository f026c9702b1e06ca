package ud

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

const (
	// grhLen is the length in bytes of the GRH area in front of each received datagram.
	grhLen = 40
	// maxHeader and maxVec are AMZcopy's limits: bytes of header and number of vectors.
	maxHeader = 256
	maxVec    = 16
	// pollBatch is the largest number of completions per poll, refill the largest number of
	// receives per post.
	pollBatch   = 64
	refillBatch = 16
	// initialReceives is the number of receives posted before there is a peer. The first
	// peer causes the others to be posted.
	initialReceives = 32
)

// iface is a worker's interface on a port: one queue pair, and the flows over it.
//
// Concurrency: fields that change are accessed only inside the Section, either by the worker's
// calls or by the async goroutine. Callbacks run inside too. Exceptions are rxConns, which is
// atomic, and active and closed, which only the worker's goroutine writes.
//
// Invariant: a receive buffer taken from rx is either posted, in freeRecvs, in descs, held out
// of order by a Receiver, or retained by the layer above.
type iface struct {
	// Fields that every pass reads.
	recvCQ      verbs.CQ
	passes      uint32
	restNeeded  bool // the next pass calls rest
	armed       bool // an event of recvCQ was requested, and may have been generated
	now         ucs.Time
	mux         *arq.Mux
	rx          *nic.Slab
	peers       []*peer
	descs       []uct.Desc // received, in order of delivery
	delivered   int        // number of entries at the front of queue that were delivered
	freeRecvs   []uint32   // receive buffers that are not posted
	retained    int        // receive buffers that the layer above retains
	maxRetained int        // limit of retained
	nic.Section
	recvWCs [pollBatch]verbs.WC

	queuePair
	tx            slots
	sendSlots     int            // slots of each size in tx
	deferredSlots []deferredSlot // acknowledged slots that the device may still read
	ackedSlots    []uint32       // reused buffer for the result of arq.Sender.HandleAck

	eps          []*endpoint // indexed by arq.Sender.Tag
	freeEps      []uint32
	unacked      []*endpoint     // endpoints with unacknowledged packets, or opening
	nextDeadline ucs.Time        // earliest deadline of the endpoints in busy
	pendingACKs  []*arq.Receiver // flows with a pending ACK, since the last flush
	agedACKs     []*arq.Receiver // flows with a pending ACK, since the flush before that
	urgentACKs   []*arq.Receiver // flows whose pending ACK must not wait
	recvWindow   int             // window that ACKs advertise to each sender
	activeRx     int             // flows by which a packet was received since the last sweep
	heldLens     []uint16        // lengths of out-of-order packets, indexed by receive buffer
	heldBufs     int             // receive buffers that hold out-of-order packets
	timedOutRx   []*arq.Receiver
	halfOpen     nic.HalfOpen[*arq.Receiver]
	bodyBuf      []byte
	peerSearches int
	sweepEvery   time.Duration
	waiting      []*endpoint // endpoints with pending operations
	dispatchAt   uint        // index in waiting at which ResumePending starts
	events       []uct.Event
	failures     []*endpoint          // endpoints whose failure is to be reported
	pairedEPs    map[uint32]*endpoint // endpoints reported together with the end of a flow, by the flow's Desc.Source
	sweptAt      ucs.Time

	d           *nic.Domain
	handler     uct.Handler
	attr        uct.IfaceAttr
	self        address
	device      []byte
	conf        arq.Config
	stats       *stats.Set
	group       *stats.Group
	statsName   string // name of stats in group
	peersByName map[uint64]*peer
	ahs         map[verbs.AHAttr]*addrHandle
	freePeers   []uint32
	thread      *nic.Thread
	channel     verbs.CompChannel
	wake        *nic.Wake
	sleeping    bool // Arm succeeded: a section that receives something signals wake
	active      int
	rxConns     atomic.Int32 // connections from peers; atomic, since ActiveEndpoints reads it outside owner
	threads     int
	linger      time.Duration
	closed      bool
}

// deferredSlot is an acknowledged slot. It becomes free once work request by has completed.
type deferredSlot struct {
	slot   uint32
	readBy uint64
}

// openIface opens a worker's interface on a port of d.
func openIface(d *nic.Domain, port uint8, c uct.IfaceConfig) (uct.Iface, error) {
	if c.Worker == (uct.UUID{}) || c.Threads < 0 {
		return nil, fmt.Errorf("no worker, or %d threads: %w", c.Threads, ucs.ErrInvalid)
	}
	f := &iface{
		d: d, handler: c.Handler, threads: max(c.Threads, 1), now: ucs.Now(), conf: flowConfig(c.Settings),
		peersByName: map[uint64]*peer{}, ahs: map[verbs.AHAttr]*addrHandle{}, linger: linger.Get(c.Settings), group: c.Stats,
	}
	f.stats, f.nextDeadline = stats.NewSet(statNames[:]), nic.Never
	f.halfOpen = nic.NewHalfOpen[*arq.Receiver](d.Context().Attr().MaxAH)
	if err := f.open(port, c); err != nil {
		return nil, errors.Join(err, f.release())
	}
	return f, nil
}

func (f *iface) open(port uint8, c uct.IfaceConfig) (err error) {
	if f.self.port, err = f.d.PortAddress(port); err != nil {
		return err
	}
	packet := f.self.port.MTU.Bytes()
	f.attr = attrOf(packet - arq.HeaderLen)
	if f.d.Context().Info().Provider != "soft" {
		// Source: UCX 1.13's of an adapter of 100 Gb/s.
		f.attr.Estimate = uct.Estimate{Shared: 12000e6, LatencyNS: 630, OverheadNS: 105}
	}
	f.attr.FailureWithin = f.conf.PeerTimeout + 2*f.conf.KeepAlive
	if f.thread, err = f.d.NewThread(); err != nil {
		return err
	}
	receives := rxQueueLen.Get(c.Settings)
	f.sendSlots = txQueueLen.Get(c.Settings)
	if f.rx, err = nic.NewSlab(f.thread.PD, receives, stride(grhLen+packet)); err != nil {
		return err
	}
	if f.channel, err = f.d.Context().CreateCompChannel(); err != nil {
		return err
	}
	if f.wake, err = nic.NewWake(f.channel.FD()); err != nil {
		return err
	}
	if err = f.openQP(port, receives, c.Worker); err != nil {
		return err
	}
	f.device = f.self.appendDevice(nil)
	f.mux = arq.NewMux(&f.conf, f.self.name)
	f.recvWindow, f.heldLens = int(f.conf.Window), make([]uint16, receives)
	f.maxRetained = receives / 2
	if m := c.Resources.MaxUnexpected; m > 0 {
		f.maxRetained = max(min(m/packet, f.maxRetained), 1)
	}
	f.postReceives(initialReceives)
	if f.group != nil {
		f.statsName = transportName + "." + f.d.DeviceName(port)
		if err = f.group.Add(f.statsName, f.stats); err != nil {
			return err
		}
	}
	f.sweepEvery = max(min(f.conf.KeepAlive/4, time.Second), time.Millisecond)
	return f.OpenSection(nic.SectionConfig{
		FD: f.channel.FD(), Arm: f.arm, Run: f.runSection, Slack: pollTimeout / 2, Unattended: c.Unattended,
	})
}

// prefill allocates the send slots and posts all receives. It is called for each new peer
// and does nothing after the first.
func (f *iface) prefill() error {
	if err := f.tx.alloc(f.thread.PD, f.sendSlots, f.self.port.MTU.Bytes()); err != nil {
		return err
	}
	if f.rx.Free() > 0 {
		f.postReceives(f.rx.Free())
	}
	return nil
}

// postReceives posts up to n more receives.
func (f *iface) postReceives(n int) {
	for range n {
		i, ok := f.rx.Take()
		if !ok {
			break
		}
		f.freeRecvs = append(f.freeRecvs, i)
	}
	f.repost()
}

// attrOf returns the attributes of an interface whose messages have at most n bytes.
func attrOf(n int) uct.IfaceAttr {
	return uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpFlushLocal | uct.OpFlushRemote | uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:  uct.Limit{Short: n, Bcopy: n, MaxZcopy: n - maxHeader, MaxVec: maxVec, MaxHeader: maxHeader},
		// The peer's messages are processed by Progress.
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend, PeerFailure: true,
		// These are estimates, not measured on a quiet machine.
		Estimate: uct.Estimate{Dedicated: 1500 << 20, LatencyNS: 2500, OverheadNS: 120},
	}
}

// Attr: see uct.Iface.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress appends the address of the port.
func (f *iface) DeviceAddress(b []byte) []byte { return append(b, f.device...) }

// Address appends the address of the queue pair.
func (f *iface) Address(b []byte) []byte { return f.self.append(b) }

// Reachable: see uct.Iface.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	var to address
	if err := to.parse(a); err != nil {
		return false, err.Error()
	}
	return f.canReach(&to)
}

func (f *iface) canReach(to *address) (bool, string) {
	if to.port.MTU < f.self.port.MTU {
		return false, fmt.Sprintf("peer's MTU is %d bytes, local MTU is %d", to.port.MTU.Bytes(), f.self.port.MTU.Bytes())
	}
	return f.self.port.Reaches(&to.port)
}

// NewEndpoint creates an endpoint. Its flow opens with the first message.
func (f *iface) NewEndpoint(a uct.Address, t int) (uct.Endpoint, error) {
	if t < 0 || t >= f.threads {
		return nil, fmt.Errorf("new ud endpoint: thread index %d of %d: %w", t, f.threads, ucs.ErrInvalid)
	}
	var to address
	if err := to.parse(a); err != nil {
		return nil, fmt.Errorf("new ud endpoint: %w: %w", err, ucs.ErrUnreachable)
	}
	if ok, why := f.canReach(&to); !ok {
		return nil, fmt.Errorf("new ud endpoint: %s: %w", why, ucs.ErrUnreachable)
	}
	f.EnterWait()
	defer f.Leave()
	if f.closed {
		return nil, fmt.Errorf("new ud endpoint: iface %w", ucs.ErrClosed)
	}
	e, err := f.newEndpoint(&to)
	if err != nil {
		return nil, fmt.Errorf("new ud endpoint: %w", err)
	}
	return e, nil
}

// Activate: see uct.Iface.
func (f *iface) Activate() { f.active++ }

// Deactivate: see uct.Iface.
func (f *iface) Deactivate() { f.active-- }

// ActiveEndpoints returns the number of active endpoints and of connections from peers.
func (f *iface) ActiveEndpoints() int { return f.active + int(f.rxConns.Load()) }

// Flush completes at once, since every accepted message was copied.
func (f *iface) Flush(uct.Token) uct.Status { return f.Fence() }

// Fence does nothing, since each endpoint delivers in order.
func (f *iface) Fence() uct.Status {
	if f.closed {
		return ucs.Closed
	}
	return ucs.OK
}

// Release returns retained receive buffers to the queue pair.
func (f *iface) Release(handles []uint64) {
	f.EnterWait()
	defer f.Leave()
	if f.closed {
		return
	}
	for _, h := range handles {
		f.freeRecvs = append(f.freeRecvs, uint32(h))
	}
	f.retained -= len(handles)
	f.restNeeded = true
}
