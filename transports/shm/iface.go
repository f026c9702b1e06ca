package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"go.uber.org/zap"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
)

const (
	maxHeader = 256
	maxVec    = 16
	// maxHot is the maximum number of connections that each pass polls.
	maxHot = 8
	// closeDialTimeout is the maximum time that Close waits for peers whose backlog is full.
	closeDialTimeout = 100 * time.Millisecond
)

// iface is a worker's interface with all its connections.
//
// Concurrency: one goroutine at a time. All callbacks run inside Progress.
type iface struct {
	// Fields that an idle pass reads.
	mail          mailPoll
	only          *ep // the only hot connection, unless passes poll a mailbox or the worker is armed; otherwise nil
	hot           []*ep
	doorbells     []uint64 // doorbell words that passes poll: of page currentPage
	lastDoorbells []uint64 // their last values
	nextDoorbell  int      // index of the next word to poll
	servedAt      uint32   // passes at the last call of service
	workAt        uint32   // passes from which on a pass has work besides hot: doorbells, waiting or service
	left          int32    // passes until then
	word          uct.PollWord
	pace          ucs.Pace // of polls of the sockets
	polledAt      ucs.Time // the last poll that was not skipped
	skippedPolls  uint32   // polls that were skipped since then
	received      uint64   // messages of the hot connections at the last poll, done or skipped
	nextHot       int      // index in hot at which the next drain begins
	serviceNeeded bool     // service has work
	waiting       []*ep
	fetching      []*ep // connections from whose peers messages are copied, in each pass a piece
	exposing      []*ep // connections whose peers copy messages of this side
	mapping       []*ep // connections with regions of the peer
	nextFetching  int   // index in fetching, and in exposing, of the next turn
	nextExposing  int
	wakeOnRoom    []*ep // connections of waiting whose peers must wake this worker

	conn.Table[ifaceName, *ep]

	d           *domain
	stats       *stats.Set
	group       *stats.Group
	handler     uct.Handler
	attr        uct.IfaceAttr
	name        ifaceName
	dir         string
	deviceAddr  []byte // device address
	worker      uct.UUID
	layout      ring.Layout // of new connections
	maxRingSize int         // maximum ring size in bytes
	nullPair    *pair

	pages             []ownPage
	currentPage       int
	firstReads        []*ep               // read for the first time in the next service
	undialed          []*ep               // OPEN not sent yet, as the peer's backlog was full
	connecting        map[ifaceName]*ep   // own connects that may cross with one of the peer
	merged            map[uint64]struct{} // peer's connections whose ring pair came with ACCEPT; a later OPEN is ignored
	deferred          []*ep               // actions wait for the end of a reservation
	pairRequests      []*ep               // need another ring pair
	sparePairRequests []*ep               // empty; swapped with pairRequests
	recheck           conn.Queue[*ep]     // no longer hot, or with messages left; passes poll them

	listener   *shmem.Listener
	epoll      *shmem.Epoll
	event      *shmem.WakePipe
	halfOpen   map[uint32]halfOpenConn
	halfOpenID uint32
	openDepth  int // nesting depth of acceptOpen
	// halfOpenOldest: no entry has this id or a smaller one.
	halfOpenOldest uint32

	acceptPausedUntil ucs.Time // out of descriptors: the listener is not polled before; 0: it is polled
	acceptTimer       *time.Timer
	mappedConns       int // connections that have a ring pair

	state          ifaceState
	eventSignalled bool   // event may be signalled
	sleepID        uint32 // number of the last armed sleep, stored in the armed words
	progressDepth  int    // nesting depth of callbacks
	fenceFlag      uint8  // flagFence if membarrier is not available
	copies         copyWays
	features       protocol.Features // of this side's connection messages
	scanInterval   time.Duration
	scanStart      ucs.Time // start of the current scan of all connections
	sliceStart     ucs.Time // time of its last slice
	nextScanSlot   int      // first slot of the next slice
	servicedAt     ucs.Time

	ds       [drainBatch]uct.Desc
	mailData [ring.MailMax]byte
	ended    [1]uct.Event // of a fetch
	events   [64]shmem.Event
}

// ifaceState is what the worker does with its iface.
type ifaceState uint8

const (
	polling ifaceState = iota // it calls Progress
	armed                     // it sleeps, or is about to: peers and other goroutines signal the event
	closed                    // Close was called
)

// ownPage is a doorbell page of this iface, with the last values of its doorbell words.
type ownPage struct {
	*doorbellPage
	lastSeen []uint64
}

// openIface opens a worker's interface on domain d.
func openIface(d *domain, _ uct.IfaceInfo, c uct.IfaceConfig) (uct.Iface, error) {
	if c.Handler == nil {
		return nil, fmt.Errorf("open shm iface: no handler: %w", ucs.ErrInvalid)
	}
	set := c.Settings
	if set == nil {
		set = d.settings
	}
	layout, err := ringLayout(set)
	if err != nil {
		return nil, fmt.Errorf("open shm iface: %w", err)
	}
	f := &iface{
		d: d, handler: c.Handler, layout: layout, dir: socketDir.Get(set),
		halfOpen: map[uint32]halfOpenConn{}, scanInterval: rescan.Get(set), worker: c.Worker,
		connecting: map[ifaceName]*ep{}, merged: map[uint64]struct{}{},
		maxRingSize: int(ringMaxSize.Get(set)), word: uct.PollWord{Next: alwaysReady},
	}
	if shmem.RegisterGlobal() != nil {
		f.fenceFlag = flagFence
	}
	var fetch uct.FetchAttr
	f.copies, fetch = copiesOf(set)
	if f.copies != 0 {
		f.features |= featureCopies
	}
	if mailboxUse.Get(set) == "auto" {
		f.features |= featureMailbox
	}
	f.stats, f.group = stats.NewSet(statNames[:]), c.Stats
	f.recheck.Mark = inRecheck
	f.Init(conn.Hooks[*ep]{
		Handler: f.handler, Stats: f.stats, Failed: statFailed, Wake: f.requestService,
		Reject: func(e *ep) {
			if e.status == ucs.OK {
				e.rejectOps(ucs.PeerFailed)
			}
		},
		Active: func() int { return f.mappedConns }, Limit: maxPairs.Get(set),
		Uses: func(e *ep) (uint64, bool) { return e.tx.Head() + e.rx.Consumed(), e.M.Quiescent() && !e.hasPending() },
	})
	if f.nullPair, err = newNullPair(); err != nil {
		return nil, fmt.Errorf("open shm iface: %w", err)
	}
	n, whole := layout.MaxBulk(), uct.Limit{Short: math.MaxInt, Bcopy: math.MaxInt, MaxZcopy: math.MaxInt, MaxVec: maxVec}
	f.attr = uct.IfaceAttr{
		Fetch: fetch,
		Ops: uct.OpsAM | uct.OpsPut | uct.OpsGet | uct.OpAtomics | uct.OpFlushLocal | uct.OpFlushRemote |
			uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:     uct.Limit{Short: n, Bcopy: n, MaxZcopy: n, MaxVec: maxVec, MaxHeader: maxHeader},
		Put:    whole,
		Get:    whole,
		Post32: uct.PostAtomics, Post64: uct.PostAtomics, Fetch32: uct.AllAtomics, Fetch64: uct.AllAtomics,
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend, MaxConnections: maxPairs.Get(set),
		AckMeansPlaced: true, PeerFailure: true,
		// UCX's estimates for its mm transports.
		Estimate: uct.Estimate{Dedicated: 15360 << 20, LatencyNS: 80, OverheadNS: 10},
	}
	f.deviceAddr = appendDeviceAddress(nil, f.dir)
	_, _ = rand.Read(f.name[:]) // never fails
	if err = f.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open shm iface: %w", err), f.releaseAll())
	}
	d.countIfaces(1)
	return f, nil
}

// open creates the listener, the wake pipe and the epoll set.
func (f *iface) open() (err error) {
	if f.epoll, err = shmem.NewEpoll(); err != nil {
		return err
	}
	if f.event, err = shmem.NewWakePipe(); err != nil {
		return err
	}
	if f.dir != "" {
		sweepSockets(f.dir)
	}
	if f.listener, err = shmem.Listen(f.socketName(f.name)); err != nil {
		if f.dir != "" {
			return fmt.Errorf("UCX_SHM_SOCKET_DIR=%s: %w", f.dir, err)
		}
		return err
	}
	if err = f.epoll.Add(f.event.FD(), evWake, shmem.EventIn); err != nil {
		return err
	}
	if err = f.epoll.Add(f.listener.FD(), evAccept, shmem.EventIn); err != nil {
		return err
	}
	if f.group != nil {
		return f.group.Add(transportName, f.stats)
	}
	return nil
}

const socketPrefix = "goucx-"

// socketName returns the socket name on which iface n listens.
func (f *iface) socketName(n ifaceName) string {
	s := socketPrefix + hex.EncodeToString(n[:])
	if f.dir != "" {
		return filepath.Join(f.dir, s)
	}
	return "@" + s
}

// Attr returns the capabilities of the iface.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress appends the host, namespace and user of this iface.
func (f *iface) DeviceAddress(b []byte) []byte { return append(b, f.deviceAddr...) }

// Address appends the iface's name.
func (f *iface) Address(b []byte) []byte { return append(b, f.name[:]...) }

// Reachable compares host, namespace and user with those of the address.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	if len(a.Iface) != len(f.name) {
		return false, fmt.Sprintf("damaged address: name of %d bytes, want %d", len(a.Iface), len(f.name))
	}
	return compareDevice(f.deviceAddr, a.Device)
}

// NewEndpoint matches a connection that the peer initiated, or connects.
func (f *iface) NewEndpoint(a uct.Address) (uct.Endpoint, error) {
	if f.state == closed {
		return nil, fmt.Errorf("new shm endpoint: iface %w", ucs.ErrClosed)
	}
	if ok, reason := f.Reachable(a); !ok {
		return nil, fmt.Errorf("new shm endpoint: %s: %w", reason, ucs.ErrUnreachable)
	}
	peer := ifaceName(a.Iface)
	for _, e := range f.ByPeer[peer] {
		// A connection with a shorter maximum message than this iface's only receives.
		if e.Adoptable() && e.Facts&(conn.Separate|closeReceived) == 0 && e.maxBulk >= f.attr.AM.Bcopy {
			e.Add(conn.Opened)
			return e, nil
		}
	}
	e, err := f.connect(peer, a.Device)
	if err != nil {
		return nil, fmt.Errorf("new shm endpoint: %w", err)
	}
	e.Add(conn.Opened)
	return e, nil
}

// Release does nothing: ring cells are never retained.
func (f *iface) Release([]uint64) {}

// EventFD returns a descriptor that becomes readable on wake-ups, new connections,
// socket messages and hang-ups.
func (f *iface) EventFD() int { return f.epoll.FD() }

// Flush completes at once, as the endpoints' Flush does.
func (f *iface) Flush(uct.Token) uct.Status { return f.Fence() }

// Fence orders stores to mapped memory. One barrier covers all endpoints.
func (f *iface) Fence() uct.Status {
	if f.state == closed {
		return ucs.Closed
	}
	for _, e := range f.Slots {
		if e != nil {
			e.Barrier()
			break
		}
	}
	return ucs.OK
}

// Close closes all connections and sends SHUTDOWN to their peers. It waits up to
// closeDialTimeout for peers whose backlog is full. Messages to peers that stay unreachable
// are lost; Close logs their number of connections.
func (f *iface) Close() error {
	if f.state == closed {
		return nil
	}
	if f.progressDepth > 0 {
		return fmt.Errorf("close shm iface from one of its callbacks: %w", ucs.ErrBusy)
	}
	f.state = closed
	if f.group != nil {
		f.group.Remove(transportName)
	}
	err := f.releaseAll()
	f.d.countIfaces(-1)
	return err
}

// releaseAll closes all connections and frees all resources, of an iface that is closed or
// of one that failed to open.
func (f *iface) releaseAll() (err error) {
	// Dial the peers to which OPEN and messages are still to be sent. Messages to those that stay
	// unreachable are lost.
	limit := ucs.Now().Add(closeDialTimeout)
	for f.dialAll(); f.countUnsent() > 0 && ucs.Now() < limit; f.dialAll() {
		time.Sleep(time.Millisecond)
	}
	if n := f.countUnsent(); n > 0 && f.d.log != nil {
		f.d.log.Warn("closed before peers were reachable; messages to them are lost", zap.Int("connections", n))
	}
	// A peer whose OPEN has arrived gets SHUTDOWN too. Otherwise it would take this process for dead.
	if f.listener != nil {
		f.acceptAll()
	}
	for id := range f.halfOpen {
		f.receiveOpen(id)
	}
	if f.acceptTimer != nil {
		f.acceptTimer.Stop()
	}
	for _, e := range f.Slots {
		if e == nil {
			continue
		}
		if e.status == ucs.OK {
			e.rejectOps(ucs.Closed)
		}
		e.discardUnread()
		e.sendClose(kindShutdown)
		err = errors.Join(err, e.release())
	}
	for _, c := range f.halfOpen {
		err = errors.Join(err, c.sock.Close())
	}
	for _, p := range f.pages {
		err = errors.Join(err, p.seg.Close())
	}
	if f.listener != nil {
		path, lerr := f.listener.CloseKeepFile()
		if err = errors.Join(err, lerr); path != "" {
			err = errors.Join(err, f.d.keepTombstone(path))
		}
	}
	if f.event != nil {
		err = errors.Join(err, f.event.Close())
	}
	if f.epoll != nil {
		err = errors.Join(err, f.epoll.Close())
	}
	f.Clear()
	f.mail, f.only = mailPoll{}, nil
	f.hot, f.doorbells, f.lastDoorbells, f.waiting, f.halfOpen, f.pages = nil, nil, nil, nil, nil, nil
	f.undialed, f.recheck, f.wakeOnRoom, f.serviceNeeded = nil, conn.Queue[*ep]{}, nil, false
	f.deferred, f.pairRequests, f.firstReads, f.fetching, f.exposing, f.mapping = nil, nil, nil, nil, nil, nil
	return err
}
