package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/ucs/stats"
	"github.com/goucx/goucx/uct"
)

const (
	maxHead = 256
	maxVec  = 16
	// maxHot is how many connections are polled in each pass.
	maxHot = 8
)

// iface is a worker's side of all its connections. One goroutine at a time uses
// it; every callback comes from Progress.
type iface struct {
	// What an idle pass reads.
	hot       []*ep
	words     []uint64 // head words of the inbox page under inspection
	seen      []uint64 // what they were at the last look
	cold      int      // next of them to look at
	passes    uint32
	turn      int  // which of the hot is served first
	attention bool // service has work
	extra     bool // passes may have more to do than to poll hot: words, waiting, attention
	waiting   []*ep
	asleep    []*ep // those of waiting whose peers were told to wake us

	d       *domain
	stats   *stats.Set
	group   *stats.Group
	handler uct.Handler
	attr    uct.IfaceAttr
	name    ifaceName
	dir     string
	device  []byte // its address
	worker  uct.UUID
	layout  ring.Layout // of new connections
	largest int         // bytes to which a ring may grow
	nowhere nowhere

	pages    []page
	pageAt   int
	slots    []*ep
	freeSlot []int
	peers    map[ifaceName][]*ep // the connections with each, oldest first
	starting []*ep               // that are to be read for the first time
	undialed []*ep               // whose peer's backlog was full
	openings map[ifaceName]*ep   // connections that cross with one that the peer makes
	merged   map[uint64]struct{} // the peer's connections that came with an accept, whose hello may come yet
	deferred []*ep               // that have actions to be done after a reservation
	wanting  []*ep               // that want another pair
	served   []*ep               // cleared: wanting by turns
	recheck  []*ep               // no longer watched, to be looked at once more
	ending   []*ep               // to be looked at by settle

	listener *shmem.Listener
	epoll    *shmem.Epoll
	event    *shmem.WakePipe
	embryos  map[uint32]embryo
	embryoID uint32
	// embryoOldest: none with this number or a smaller one is left.
	embryoOldest uint32

	deafUntil ucs.Time // the listener is not looked at, for want of descriptors
	alarm     *time.Timer
	mapped    int // connections that have a pair
	maxMapped int
	lulled    ucs.Time

	active    int // by the layer above
	accepted  int // by peers
	threads   int
	armed     bool
	raised    bool   // event may be up
	sleeps    uint32 // number of the last sleep that was armed
	busy      int    // depth of callbacks
	closed    bool
	noBarrier bool // membarrier is not to be had
	scanEvery time.Duration
	sweep     ucs.Time // when the last scan of all connections began
	scanned   ucs.Time // when its last slice was
	scanAt    int      // first slot of the next slice
	tended    ucs.Time

	ds     [drainBatch]uct.Desc
	events [64]shmem.Event
}

// page is an inbox page of this iface and what its head words were.
type page struct {
	*inbox
	seen []uint64
}

// openIface opens a worker's interface on the domain.
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
		threads: max(c.Threads, 1), embryos: map[uint32]embryo{}, scanEvery: rescan.Get(set), worker: c.Worker,
		peers: map[ifaceName][]*ep{}, openings: map[ifaceName]*ep{}, merged: map[uint64]struct{}{},
		largest: int(ringMaxSize.Get(set)), maxMapped: maxPairs.Get(set),
		noBarrier: shmem.RegisterGlobal() != nil,
	}
	if f.nowhere, err = newNowhere(); err != nil {
		return nil, fmt.Errorf("open shm iface: %w", err)
	}
	f.attr = attrOf(layout)
	f.device = appendDevice(nil, f.dir)
	_, _ = rand.Read(f.name[:]) // never fails
	f.stats, f.group = stats.NewSet(statNames[:]), c.Stats
	if err = f.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open shm iface: %w", err), f.releaseAll())
	}
	d.ifaceOpened()
	return f, nil
}

func attrOf(l ring.Layout) uct.IfaceAttr {
	whole := uct.Limit{Short: math.MaxInt, Bcopy: math.MaxInt, MaxZcopy: math.MaxInt, MaxVec: maxVec}
	n := l.MaxBulk()
	return uct.IfaceAttr{
		Ops: uct.OpsAM | uct.OpsPut | uct.OpsGet | uct.OpAtomics | uct.OpFlushLocal | uct.OpFlushRemote |
			uct.OpFlushCancel | uct.OpFence | uct.OpPending | uct.OpCheck,
		AM:     uct.Limit{Short: n, Bcopy: n, MaxZcopy: n, MaxVec: maxVec, MaxHead: maxHead},
		Put:    whole,
		Get:    whole,
		Post32: uct.PostAtomics, Post64: uct.PostAtomics, Fetch32: uct.AllAtomics, Fetch64: uct.AllAtomics,
		Connect: uct.ConnectToIface, Events: uct.EventRecv | uct.EventSend,
		AckMeansPlaced: true, PeerFailure: true,
		// Estimates of UCX's mm transports.
		Est: uct.Estimate{Dedicated: 15360 << 20, LatencyNS: 80, OverheadNS: 10},
	}
}

// open makes the descriptors that the iface is found and woken by.
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

// socketName is where the iface of that name listens.
func (f *iface) socketName(n ifaceName) string {
	s := socketPrefix + hex.EncodeToString(n[:])
	if f.dir != "" {
		return filepath.Join(f.dir, s)
	}
	return "@" + s
}

// Attr tells what the iface can do.
func (f *iface) Attr() *uct.IfaceAttr { return &f.attr }

// DeviceAddress says which host, namespace and user this is.
func (f *iface) DeviceAddress(b []byte) []byte { return append(b, f.device...) }

// Address is the iface's name.
func (f *iface) Address(b []byte) []byte { return append(b, f.name[:]...) }

// Reachable compares host, namespace and user.
func (f *iface) Reachable(a uct.Address) (bool, string) {
	if len(a.Iface) != len(f.name) {
		return false, fmt.Sprintf("damaged address: name of %d bytes, want %d", len(a.Iface), len(f.name))
	}
	return compareDevice(f.device, a.Device)
}

// NewEndpoint takes the connection that the peer made, or makes one.
func (f *iface) NewEndpoint(a uct.Address, t int) (uct.Endpoint, error) {
	if f.closed {
		return nil, fmt.Errorf("new shm endpoint: iface %w", ucs.ErrClosed)
	}
	if t < 0 || t >= f.threads {
		return nil, fmt.Errorf("new shm endpoint: thread index %d of %d: %w", t, f.threads, ucs.ErrInvalid)
	}
	if ok, why := f.Reachable(a); !ok {
		return nil, fmt.Errorf("new shm endpoint: %s: %w", why, ucs.ErrUnreachable)
	}
	peer := ifaceName(a.Iface)
	e := f.untaken(peer)
	if e == nil {
		var err error
		if e, err = f.connect(peer, a.Device); err != nil {
			return nil, fmt.Errorf("new shm endpoint: %w", err)
		}
	}
	e.opened = true
	return e, nil
}

// untaken finds a connection that the peer made and nobody sends on. Rings of
// another geometry than ours serve for receiving alone.
func (f *iface) untaken(peer ifaceName) *ep {
	for _, e := range f.peers[peer] {
		if e.takeable() && e.maxBulk >= f.attr.AM.Bcopy {
			return e
		}
	}
	return nil
}

// Release has nothing to do: ring cells are never kept.
func (f *iface) Release([]uint64) {}

// EventFD becomes readable on wake-ups, connections and hang-ups.
func (f *iface) EventFD() int { return f.epoll.FD() }

// Activate counts an endpoint that the layer above uses.
func (f *iface) Activate() { f.active++ }

// Deactivate ends one Activate.
func (f *iface) Deactivate() { f.active-- }

// ActiveEndpoints counts those and the connections that peers made.
func (f *iface) ActiveEndpoints() int { return f.active + f.accepted }

// Flush ends at once, as the endpoints' does.
func (f *iface) Flush(uct.Token) uct.Status { return f.Fence() }

// Fence orders stores to mapped memory. One barrier serves all endpoints.
func (f *iface) Fence() uct.Status {
	if f.closed {
		return ucs.Closed
	}
	for _, e := range f.slots {
		if e != nil {
			e.Barrier()
			break
		}
	}
	return ucs.OK
}

// Close ends all connections; peers hear of it in order. For peers whose backlog
// was full, so that they could not be reached yet, it waits up to lastDial; what
// was sent to those that cannot be reached then is lost, and the log says so.
func (f *iface) Close() error {
	if f.closed {
		return nil
	}
	if f.busy > 0 {
		return fmt.Errorf("close shm iface from one of its callbacks: %w", ucs.ErrBusy)
	}
	f.closed = true
	if f.group != nil {
		f.group.Remove(transportName)
	}
	err := f.releaseAll()
	f.d.ifaceClosed()
	return err
}

func (f *iface) releaseAll() (err error) {
	f.dialLast()
	if f.alarm != nil {
		f.alarm.Stop()
	}
	for _, e := range f.slots {
		if e == nil {
			continue
		}
		if e.status == ucs.OK {
			e.shut(ucs.Closed)
		}
		e.bye(kindByeAll)
		err = errors.Join(err, e.release())
	}
	for _, m := range f.embryos {
		err = errors.Join(err, m.sock.Close())
	}
	for _, p := range f.pages {
		err = errors.Join(err, p.close())
	}
	if f.listener != nil {
		path, lerr := f.listener.Leave()
		if err = errors.Join(err, lerr); path != "" {
			err = errors.Join(err, f.d.leave(path))
		}
	}
	if f.event != nil {
		err = errors.Join(err, f.event.Close())
	}
	if f.epoll != nil {
		err = errors.Join(err, f.epoll.Close())
	}
	f.hot, f.words, f.seen, f.waiting, f.slots, f.embryos, f.pages = nil, nil, nil, nil, nil, nil, nil
	f.undialed, f.recheck, f.ending, f.asleep, f.attention = nil, nil, nil, nil, false
	f.deferred, f.wanting, f.starting, f.peers = nil, nil, nil, nil
	return err
}
