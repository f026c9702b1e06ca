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
// atomic, and active and state, which only the worker's goroutine writes.
//
// Invariant: a receive buffer taken from rx is either posted, in freeRecvs, in descs, held out
// of order by a Receiver, or retained by the layer above.
type iface struct {
	// Fields that every pass reads.
	recvCQ      verbs.CQ
	passes      uint32
	state       ifaceState
	restNeeded  bool // the next pass calls progressSlow
	armed       bool // an event of recvCQ was requested, and may have been generated
	now         ucs.Time
	mux         *arq.Mux
	rx          *nic.Slab
	peers       []*peer
	descs       []uct.Desc // received, in order of delivery
	delivered   int        // number of entries at the front of descs that were delivered
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
	nextDeadline ucs.Time        // earliest deadline of the endpoints in unacked
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
	pairedEPs    map[uint32]*endpoint // endpoints reported together with the end of a flow, by the flow's Desc.RxConn
	sweptAt      ucs.Time
	peerChecks   nic.CheckTimer
	watcher      nic.Watcher

	d           *nic.Domain
	handler     uct.Handler
	attr        uct.IfaceAttr
	self        address
	port        uint8
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
	active      int
	rxConns     atomic.Int32 // connections from peers; atomic, since ActiveEndpoints reads it outside the Section
	linger      time.Duration
}

// ifaceState is the state of an interface. It becomes closed from both others, for good.
type ifaceState uint8

const (
	// ifaceAwake: the worker calls Progress, or computes.
	ifaceAwake ifaceState = iota
	// ifaceSleeping: Arm succeeded, and no slow pass followed. A section that has something to
	// report signals iface.wake.
	ifaceSleeping
	// ifaceClosed: Close was called.
	ifaceClosed
)

// deferredSlot is an acknowledged slot. It becomes free once work request readBy has completed.
type deferredSlot struct {
	slot   uint32
	readBy uint64
}

// openIface opens a worker's interface on a port of d.
func openIface(d *nic.Domain, port uint8, c uct.IfaceConfig) (_ uct.Iface, err error) {
	if c.Worker == (uct.UUID{}) {
		return nil, fmt.Errorf("no worker: %w", ucs.ErrInvalid)
	}
	f := &iface{
		d: d, port: port, handler: c.Handler, now: ucs.Now(), conf: flowConfig(c.Settings),
		peersByName: map[uint64]*peer{}, ahs: map[verbs.AHAttr]*addrHandle{}, linger: linger.Get(c.Settings), group: c.Stats,
		stats: stats.NewSet(statNames[:]), nextDeadline: nic.Never, sendSlots: txQueueLen.Get(c.Settings),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.release())
		}
	}()

	// The queue pair, its memory and its events.
	if f.self.Port, err = d.PortAddress(port); err != nil {
		return nil, err
	}
	packet, receives := f.self.Port.MTU.Bytes(), rxQueueLen.Get(c.Settings)
	if f.thread, err = d.NewThread(c.Resources); err != nil {
		return nil, err
	}
	if f.rx, err = nic.NewSlab(f.thread.PD, receives, stride(grhLen+packet)); err != nil {
		return nil, err
	}
	if f.channel, err = d.Context().CreateCompChannel(); err != nil {
		return nil, err
	}
	if f.wake, err = nic.NewWake(f.channel.FD()); err != nil {
		return nil, err
	}
	if err = f.openQP(port, receives, c.Worker); err != nil {
		return nil, err
	}

	// The flows.
	f.device = f.self.AppendDevice(nil)
	f.watcher.OnFailure = f.NoteDeviceFailure
	f.mux = arq.NewMux(&f.conf, f.self.name)
	f.halfOpen = nic.NewHalfOpen[*arq.Receiver](d.Context().Attr().MaxAH)
	f.recvWindow, f.heldLens = int(f.conf.Window), make([]uint16, receives)
	f.sweepEvery = max(min(f.conf.KeepAlive/4, time.Second), time.Millisecond)
	f.maxRetained = receives / 2
	if m := c.Resources.MaxUnexpected; m > 0 {
		f.maxRetained = max(min(m/packet, f.maxRetained), 1)
	}
	longest := packet - arq.HeaderLen
	f.attr = uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpFlushLocal | uct.OpFlushRemote | uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:  uct.Limit{Short: longest, Bcopy: longest, MaxZcopy: longest - maxHeader, MaxVec: maxVec, MaxHeader: maxHeader},
		// The peer's messages are processed by Progress.
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend,
		PeerFailure: true, FailureWithin: f.conf.PeerTimeout + 2*f.conf.KeepAlive,
		// These are estimates, not measured on a quiet machine.
		Estimate: uct.Estimate{Dedicated: 1500 << 20, LatencyNS: 2500, OverheadNS: 120},
	}
	if d.Context().Info().Provider != "soft" {
		// Source: UCX 1.13's of an adapter of 100 Gb/s.
		f.attr.Estimate = uct.Estimate{Shared: 12000e6, LatencyNS: 630, OverheadNS: 105}
	}

	f.postReceives(initialReceives)
	if f.group != nil {
		f.statsName = transportName + "." + d.DeviceName(port)
		if err = f.group.Add(f.statsName, f.stats); err != nil {
			return nil, err
		}
	}
	err = f.OpenSection(nic.SectionConfig{
		FD: f.channel.FD(), Arm: f.arm, Run: f.runSection, Slack: pollTimeout / 2, Unattended: c.Unattended,
	})
	if err != nil {
		return nil, err
	}
	return f, nil
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

// Attr: see uct.Iface.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress appends the address of the port.
func (f *iface) DeviceAddress(b []byte) []byte { return append(b, f.device...) }

// Address appends the address of the queue pair.
func (f *iface) Address(b []byte) []byte { return f.self.AppendIface(b) }

// Reachable: see uct.Iface.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	var to address
	if err := to.parse(a); err != nil {
		return false, err.Error()
	}
	return f.canReach(&to)
}

func (f *iface) canReach(to *address) (bool, string) {
	if to.Port.MTU < f.self.Port.MTU {
		return false, fmt.Sprintf("peer's MTU is %d bytes, local MTU is %d", to.Port.MTU.Bytes(), f.self.Port.MTU.Bytes())
	}
	return f.self.Port.Reaches(&to.Port)
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
	if f.state == ifaceClosed {
		return ucs.Closed
	}
	return ucs.OK
}

// Release returns retained receive buffers to the queue pair.
func (f *iface) Release(handles []uint64) {
	f.EnterWait()
	defer f.Leave()
	if f.state == ifaceClosed {
		return
	}
	for _, h := range handles {
		f.freeRecvs = append(f.freeRecvs, uint32(h))
	}
	f.retained -= len(handles)
	f.restNeeded = true
}
