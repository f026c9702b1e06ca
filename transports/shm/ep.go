package shm

import (
	"errors"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/transports/internal/pending"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// ep is a connection to one peer, and the send handle of an endpoint once one is
// open. It owns its ring pairs until both sides have closed or one side has failed.
type ep struct {
	// Put, get and atomics need a key but no connection.
	mapped.RMA

	// Send state.
	tx               ring.Producer
	armed            *uint32 // the peer's armed word; alwaysArmed while every send must call notify
	status           uct.Status
	neededRoom       int // bytes that the last refused message needs
	resID            uct.AMID
	resHdr           uint64
	resLen           int    // bytes of the open reservation; -1: none
	consumedAtCommit uint64 // messages received when the last one in the bulk area was sent
	doorbellTag      uint64
	txPair           machine.PairID // ring pair of tx

	// Receive state.
	_       ucs.Pad
	rx      ring.Consumer
	f       *iface
	lastHit uint32 // pass of the last received message
	// fullBatches is the number of batches of drainBatch messages in a row.
	fullBatches uint32
	hot         bool
	conn.Conn
	rxPair machine.PairID // ring pair of rx

	// Connection state.
	pairs         []*pair
	newPair       *pair            // ring pair for the machine's next Make
	deferred      []machine.Action // actions that wait for the end of the reservation
	unsentMigrate machine.PairID   // ring pair of a MIGRATE that could not be sent
	merged        uint64           // key of this connection in iface.merged; 0: none
	peer          ifaceName
	needsBarrier  bool // this side issues the barrier between its store and its load of the armed word
	demotedAt     uint32
	maxBulk       int // maximum message length that every ring pair must hold

	refusals      uint32   // sends refused for lack of room since refusalsSince
	refusalsSince ucs.Time // start of the count
	migrateAfter  ucs.Time // no MIGRATE before this time

	dialAfter *ep // connection to the same peer whose OPEN must be sent first
	pend      pending.Queue
	copies    copies
	mail      mailbox

	sock        *shmem.Conn
	crossedSock *shmem.Conn // socket of the peer's crossed connect, while this side's connect is kept
	pidfd       int
	pid         int // process id of the peer; 0: it is in another namespace, or not known yet
	peerPage    *doorbellPage
	peerSlot    int
	peerEvent   *shmem.WakeWriter
}

// Facts of shm beside those of all connections. Where the peer initiated a connection that is
// conn.Separate, no endpoint uses it.
const (
	sendFailed       = conn.Own << iota // a send on the socket failed; received messages are still to be read
	rxBefore                            // received a message in an earlier ring pair
	closeReceived                       // received CLOSE or SHUTDOWN
	shutdownReceived                    // received SHUTDOWN
	inWaiting                           // in iface.waiting
	inRecheck                           // in iface.recheck
	inPairRequests                      // in iface.pairRequests
)

// alwaysArmed replaces the peer's armed word while every send must call notify: the
// peer's doorbell page is unknown, or the sends need a barrier.
var alwaysArmed uint32 = minSleepID

var errPeerCrashed = conn.PeerFailed("it hung up without closing (killed or crashed)")

// refresh reads the consumer's position in the ring. It fails the peer if the position
// is impossible.
func (e *ep) refresh() uct.Status {
	if e.tx.Refresh() {
		return ucs.OK
	}
	e.f.stats.Inc(statGarbage)
	e.f.FailLater(e, conn.PeerFailed("it wrote an impossible ring position"))
	return ucs.PeerFailed
}

// Flush completes at once: sent messages lie in memory that the peer maps.
func (e *ep) Flush(k uct.FlushKind, _ uct.Token) uct.Status {
	if e.status != ucs.OK {
		return e.status
	}
	if k == uct.FlushCancel {
		e.rejectOps(ucs.Canceled)
		return ucs.OK
	}
	e.Barrier()
	return ucs.OK
}

// Fence orders stores to mapped memory.
func (e *ep) Fence() uct.Status {
	e.Barrier()
	return e.status
}

// Check returns the known state, after it has read the messages on the socket. If the peer has
// hung up, the next Progress reports the end.
func (e *ep) Check(uct.Token) uct.Status {
	e.f.requestService()
	e.readSocket()
	if e.status == ucs.OK && e.Life == conn.HungUp {
		return ucs.PeerFailed
	}
	return e.status
}

// rejectOps makes all further operations return s.
func (e *ep) rejectOps(s uct.Status) {
	e.status = s
	e.block(s)
}

// block makes operations return s until unblock. Active messages determine s in their
// slow path.
func (e *ep) block(s uct.Status) {
	e.tx.Block()
	e.SetGate(s)
}

func (e *ep) unblock() {
	e.tx.Unblock()
	e.SetGate(ucs.OK)
}

// Close closes the send handle. The connection stays until the peer has closed as
// well. Messages sent before are still delivered.
func (e *ep) Close() {
	if !e.Drop(conn.Opened) || e.Life == conn.Released {
		return
	}
	e.PendingPurge(func(uct.Token) {})
	e.resLen = -1
	e.runDeferred()
	if e.status == ucs.OK {
		e.rejectOps(ucs.Closed)
	}
	e.sendClose(kindClose)
	// The peer may read the connections that it initiated already. Their messages could overtake
	// those of this one, so endpoints do not use them.
	for _, o := range e.f.ByPeer[e.peer] {
		if !o.Has(conn.Initiated) {
			o.Add(conn.Separate)
		}
	}
	e.f.Schedule(e)
}

// sendClose closes the sending direction: it sends CLOSE. With kindShutdown it sends SHUTDOWN
// too. If OPEN is not sent yet, dial sends CLOSE after it.
func (e *ep) sendClose(k msgKind) {
	if e.Life.Over() {
		return
	}
	fault.At(fault.Closing)
	e.continueHandshake()
	e.step(machine.Event{Kind: machine.EventClose})
	if k == kindShutdown && e.sock != nil && e.Life == conn.Open {
		_ = e.sock.Send(e.f.newConnMsg(k, e.Slot()).append(nil)) // the peer may be gone
	}
}

// releasable reports whether the connection can be released.
func (e *ep) releasable() bool {
	return !e.Has(conn.Opened) && (e.Life >= conn.Finished || e.M.State() == machine.StateClosed)
}

// disconnect closes the sockets and stops watching the peer's process. It removes the
// descriptors from the epoll set before it closes them. A child between fork and exec
// holds copies, which would keep them in the set; their events would reach the next
// connection of this slot.
func (e *ep) disconnect() (err error) {
	if e.sock != nil {
		_ = e.f.epoll.Del(e.sock.FD()) // it may not be in the set
		err = e.sock.Close()
		e.sock = nil
	}
	if e.crossedSock != nil {
		err = errors.Join(err, e.crossedSock.Close())
		e.crossedSock = nil
	}
	if e.pidfd >= 0 {
		_ = e.f.epoll.Del(e.pidfd)
		shmem.CloseFDs(e.pidfd)
		e.pidfd = -1
	}
	return err
}

// release frees all resources of the connection.
func (e *ep) release() error {
	e.Life.Step(conn.Release)
	err := errors.Join(e.releaseCopies(), e.disconnect())
	e.detachTx()
	e.detachRx()
	for _, p := range e.pairs {
		err = errors.Join(err, p.seg.Close())
	}
	if len(e.pairs) > 0 {
		e.f.mappedConns--
	}
	e.pairs, e.deferred = nil, nil
	if e.f.connecting[e.peer] == e {
		delete(e.f.connecting, e.peer)
	}
	if e.merged != 0 {
		delete(e.f.merged, e.merged)
	}
	if e.peerPage != nil {
		e.armed = &alwaysArmed
		err = errors.Join(err, e.peerPage.seg.Close(), e.peerEvent.Close())
		e.peerPage, e.peerEvent = nil, nil
	}
	return err
}
