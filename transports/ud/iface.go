package ud

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/async"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
)

const (
	// grhLen is the area before each datagram.
	grhLen = 40
	// maxHead and maxVec bound AMZcopy.
	maxHead = 256
	maxVec  = 16
	// pollBatch is the most packets taken in at once, refill the number of receives
	// posted at once.
	pollBatch = 64
	refill    = 16
	// firstReceives are posted before there is a peer, the others with the first.
	firstReceives = 32
)

// iface is a worker's interface on a port: one queue pair, and the flows over it.
// It is used inside owner alone: by the worker's calls, or by a section of the
// async goroutine.
type iface struct {
	// What a pass reads.
	recvCQ verbs.CQ
	owner  *async.Owner
	depth  int // of Progress and callbacks: inside already
	passes uint32
	more   bool // rest has work
	armed  bool // an event of recvCQ is asked for, or there
	now    ucs.Time
	mux    *arq.Mux
	rx     *nic.Slab
	peers  []*peer
	queue  []uct.Desc // in order, to be handed over
	handed int        // of them
	free   []uint32   // receive buffers that are not posted
	kept   int        // that the layer above keeps
	most   int        // that it may keep
	wcs    [pollBatch]verbs.WC

	queuePair
	tx    slots
	sends int      // of each kind in tx
	limbo []limbo  // acknowledged while the device might still read them
	freed []uint32 // what Acked gave back

	eps        []*endpoint // by arq.Sender.Tag
	freeEps    []uint32
	busy       []*endpoint // with packets under way, or opening
	due        ucs.Time    // when to look at them
	owing      []*arq.Receiver
	older      []*arq.Receiver // owe since the last look
	urgent     []*arq.Receiver
	share      int      // window of each flow that is received
	flowing    int      // flows that got something since the last sweep
	lens       []uint16 // of held packets, by receive buffer
	holding    int      // receive buffers with packets that came early
	silent     []*arq.Receiver
	halfOpen   nic.HalfOpen[*arq.Receiver]
	scratch    []byte
	searches   int
	onAlarm    func(ucs.Time)
	sweepEvery time.Duration
	waiting    []*endpoint // with pending tokens
	offerAt    uint        // where in waiting ResumePending starts
	events     []uct.Event
	failing    []*endpoint          // to be reported
	partners   map[uint32]*endpoint // to be reported with the end of a flow, by its Desc.Source
	swept      ucs.Time

	d        *nic.Domain
	handler  uct.Handler
	attr     uct.IfaceAttr
	self     address
	device   []byte
	conf     arq.Config
	stats    *stats.Set
	group    *stats.Group
	counters string // what group calls stats
	names    map[uint64]*peer
	ahs      map[verbs.AHAttr]*handle
	freeIdx  []uint32
	thread   *nic.Thread
	channel  verbs.CompChannel
	wake     *nic.Wake
	alarm    async.Timer
	alarmAt  ucs.Time // 0: not set
	asleep   bool     // Arm was called: what a section takes in must wake
	active   int
	came     atomic.Int32 // connections that peers made
	threads  int
	linger   time.Duration
	closed   bool
	watched  bool // uct.IfaceConfig.Unattended is set
}

// limbo is a slot that is free when the device has read it.
type limbo struct {
	slot uint32
	by   uint64
}

// openIface opens a worker's interface on a port of d.
func openIface(d *nic.Domain, port uint8, c uct.IfaceConfig) (uct.Iface, error) {
	if c.Worker == (uct.UUID{}) || c.Threads < 0 {
		return nil, fmt.Errorf("no worker, or %d threads: %w", c.Threads, ucs.ErrInvalid)
	}
	f := &iface{
		d: d, handler: c.Handler, threads: max(c.Threads, 1), now: ucs.Now(), conf: flowConfig(c.Settings),
		names: map[uint64]*peer{}, ahs: map[verbs.AHAttr]*handle{}, linger: linger.Get(c.Settings), group: c.Stats,
	}
	f.stats, f.due = stats.NewSet(statNames[:]), never
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
	f.attr = attrOf(packet - arq.HeadLen)
	if f.d.Context().Info().Provider != "soft" {
		// Source: UCX 1.13's of an adapter of 100 Gb/s.
		f.attr.Est = uct.Estimate{Shared: 12000e6, LatencyNS: 630, OverheadNS: 105}
	}
	f.attr.FailureWithin = f.conf.Silence + 2*f.conf.KeepAlive
	if f.thread, err = f.d.NewThread(); err != nil {
		return err
	}
	receives := rxQueueLen.Get(c.Settings)
	f.sends = txQueueLen.Get(c.Settings)
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
	f.share, f.lens, f.onAlarm = int(f.conf.Window), make([]uint16, receives), f.alarmed
	f.most = receives / 2
	if m := c.Resources.MaxUnexpected; m > 0 {
		f.most = max(min(m/packet, f.most), 1)
	}
	f.receive(firstReceives)
	if f.group != nil {
		f.counters = transportName + "." + f.d.DeviceName(port)
		if err = f.group.Add(f.counters, f.stats); err != nil {
			return err
		}
	}
	return f.openAsync(c.Unattended)
}

// stock makes what an interface with peers needs.
func (f *iface) stock() error {
	if err := f.tx.stock(f.thread.PD, f.sends, f.self.port.MTU.Bytes()); err != nil {
		return err
	}
	if f.rx.Free() > 0 {
		f.receive(f.rx.Free())
	}
	return nil
}

// receive posts up to n receives more.
func (f *iface) receive(n int) {
	for range n {
		i, ok := f.rx.Take()
		if !ok {
			break
		}
		f.free = append(f.free, i)
	}
	f.repost()
}

// attrOf describes an interface whose messages are up to n bytes.
func attrOf(n int) uct.IfaceAttr {
	return uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpFlushLocal | uct.OpFlushRemote | uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:  uct.Limit{Short: n, Bcopy: n, MaxZcopy: n - maxHead, MaxVec: maxVec, MaxHead: maxHead},
		// Messages of the peer's are looked at by progress.
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend, PeerFailure: true,
		// Estimates, not measured on a quiet machine yet.
		Est: uct.Estimate{Dedicated: 1500 << 20, LatencyNS: 2500, OverheadNS: 120},
	}
}

// Attr: see uct.Iface.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress is the port's.
func (f *iface) DeviceAddress(b []byte) []byte { return append(b, f.device...) }

// Address is the queue pair's.
func (f *iface) Address(b []byte) []byte { return f.self.append(b) }

// Reachable: see uct.Iface.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	var to address
	if err := to.parse(a); err != nil {
		return false, err.Error()
	}
	return f.reaches(&to)
}

func (f *iface) reaches(to *address) (bool, string) {
	if to.port.MTU < f.self.port.MTU {
		return false, fmt.Sprintf("peer's packets carry %d bytes, ours %d", to.port.MTU.Bytes(), f.self.port.MTU.Bytes())
	}
	return f.self.port.Reaches(&to.port)
}

// NewEndpoint makes a flow, which opens with its first message.
func (f *iface) NewEndpoint(a uct.Address, t int) (uct.Endpoint, error) {
	if t < 0 || t >= f.threads {
		return nil, fmt.Errorf("new ud endpoint: thread index %d of %d: %w", t, f.threads, ucs.ErrInvalid)
	}
	var to address
	if err := to.parse(a); err != nil {
		return nil, fmt.Errorf("new ud endpoint: %w: %w", err, ucs.ErrUnreachable)
	}
	if ok, why := f.reaches(&to); !ok {
		return nil, fmt.Errorf("new ud endpoint: %s: %w", why, ucs.ErrUnreachable)
	}
	f.enterWait()
	defer f.leave()
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

// ActiveEndpoints counts those and the flows that peers send by.
func (f *iface) ActiveEndpoints() int { return f.active + int(f.came.Load()) }

// Flush ends at once: what was accepted has been copied.
func (f *iface) Flush(uct.Token) uct.Status { return f.Fence() }

// Fence has nothing to do: endpoints keep order.
func (f *iface) Fence() uct.Status {
	if f.closed {
		return ucs.Closed
	}
	return ucs.OK
}

// Release gives receive buffers back.
func (f *iface) Release(handles []uint64) {
	f.enterWait()
	defer f.leave()
	if f.closed {
		return
	}
	for _, h := range handles {
		f.free = append(f.free, uint32(h))
	}
	f.kept -= len(handles)
	f.more = true
}

// enter goes inside; false: the async goroutine is there, for longer than its
// sections take. Calls from callbacks are inside already.
func (f *iface) enter() bool { return f.depth != 0 || f.owner.Enter() || f.owner.EnterSoon() }

// enterWait is enter for cold paths.
func (f *iface) enterWait() {
	if f.depth == 0 {
		f.owner.EnterWait()
	}
}

func (f *iface) leave() {
	if f.depth == 0 {
		f.owner.Leave()
	}
}
