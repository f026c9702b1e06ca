package ucp

import (
	"slices"

	"go.uber.org/zap"

	"github.com/goucx/goucx/ucp/internal/pool"
	"github.com/goucx/goucx/ucp/internal/wire"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup"
)

// rxConn is the receiving end of a connection (rx connection). A transport does not
// interleave the fragments of two messages of one rx connection. So it assembles one
// message at a time.
type rxConn struct {
	id      uint32 // assigned by the transport
	index   uint32 // in Worker.rxConns
	iface   *workerIface
	w       *thread
	fragSeq uint32 // fragmented messages begun
	failed  bool   // the peer violated the protocol: all messages from it are dropped
	into    reasmTarget

	// The sending worker, if it sent its address. A peer may only name ids that it was
	// sent: see sendByID.
	peer           wireup.PeerID // 0: unknown
	worker         wireup.PeerID // of the sender, if that is a Thread; 0: it is a worker itself
	partialAddr    []byte        // first part of the sender's address
	replyLane      uint32        // lane to the sender; 0: none yet
	replySent      bool          // a message that the sender waits for was sent on replyLane
	oldReplyLanes  []uint32      // failed lanes, not reported yet, on which such messages were sent
	rndvOnlyAge    uint32        // 1 + messages since the sender was requested to use rendezvous only; 0: it was not
	emulErr        ucs.Status    // first error of its emulated operations; its next flush returns it
	pendingReplies int           // messages whose sender waits for a reply: unexpected, kept, or to be fetched
	pendingFetches int           // receives that wait for the sender's data

	fromEp uint64 // the endpoint of AM.From; 0: none yet

	recvSlot   uint32 // slot of the receive, with reasmRecv
	unexpID    uint32 // id in Worker.unexpQueue, with reasmPool
	tag        uint64
	total, got uint64
	chunk      pool.Chunk // memory of the message, with reasmPool or reasmHandler
}

// rxConn returns the rx connection with this id of the transport, and creates it if needed.
func (wi *workerIface) rxConn(id uint32) *rxConn {
	if wi.lastRx != nil && wi.lastRx.id == id {
		return wi.lastRx
	}
	rx := wi.rxConns[id]
	if rx == nil {
		rx = &rxConn{id: id, iface: wi, w: wi.t}
		wi.rxConns[id] = rx
		// An index lets records without pointers refer to it.
		w := rx.w
		if n := len(w.freeRxConns); n > 0 {
			rx.index = w.freeRxConns[n-1]
			w.freeRxConns = w.freeRxConns[:n-1]
		} else {
			rx.index = uint32(len(w.rxConns))
			w.rxConns = append(w.rxConns, nil)
		}
		w.rxConns[rx.index] = rx
	}
	wi.lastRx = rx
	return rx
}

// handlePeerAddress receives a part of the address of the worker that sends on s. follow is the
// number of bytes still to come.
func (wi *workerIface) handlePeerAddress(rx *rxConn, follow uint64, data []byte) {
	w := wi.t
	if follow > wire.MaxPeerAddress || len(rx.partialAddr)+len(data) > wire.MaxPeerAddress {
		wi.protocolError(rx)
		return
	}
	rx.partialAddr = append(rx.partialAddr, data...)
	if follow > 0 {
		return
	}
	own, worker := wireup.SplitSender(rx.partialAddr)
	rx.partialAddr = nil
	ids := [2]wireup.PeerID{}
	var err error
	if ids[0], err = w.addPeer(own); err == nil && worker != nil {
		if ids[1], err = w.addPeer(worker); err != nil {
			w.releasePeer(ids[0])
		}
	}
	if err != nil { // perhaps a worker of another version, which must not wait for replies
		wi.protocolError(rx)
		w.ctx.log.Warn("disconnected a worker", zap.Error(err))
		wi.iface.Disconnect(rx.id)
		return
	}
	if rx.peer == 0 {
		rx.peer, rx.worker = ids[0], ids[1]
		return
	}
	same := rx.peer == ids[0] && rx.worker == ids[1] // it was received before
	w.releasePeer(ids[0])
	w.releasePeer(ids[1])
	if !same {
		wi.protocolError(rx)
	}
}

// sender returns the worker that sends on rx, or whose Thread does; 0: it is unknown.
func (rx *rxConn) sender() wireup.PeerID {
	if rx.worker != 0 {
		return rx.worker
	}
	return rx.peer
}

// openReplyLane returns the lane to the sender of rx, and opens it if needed. It returns 0 if
// the sender is unknown or not reachable.
func (rx *rxConn) openReplyLane() uint32 {
	w := rx.w
	if rx.replyLane != 0 {
		return rx.replyLane
	}
	if rx.peer == 0 {
		return 0
	}
	lane, _ := w.openBest(rx.peer)
	if lane == 0 {
		return 0
	}
	l := &w.lanes[lane]
	l.unretain()
	l.replyRefs++
	rx.replyLane = lane
	return lane
}

// reconnectReplyLane replaces a reply lane whose connection has failed before the failure was
// reported to UCP: the sender of rx has made another connection. Operations that wait for
// the report stay with the old lane.
//
//go:noinline
func (rx *rxConn) reconnectReplyLane() uint32 {
	w := rx.w
	old := rx.replyLane
	if rx.replySent {
		rx.leaveReplyLane()
	} else {
		rx.releaseReplyLane()
	}
	if old != 0 {
		w.laneOf.remove(w.lanes, old)
	}
	return rx.openReplyLane()
}

// leaveReplyLane detaches rx from its reply lane, whose connection has failed, and remembers the lane
// in oldReplyLanes. Later replies use another lane.
func (rx *rxConn) leaveReplyLane() {
	rx.oldReplyLanes = append(rx.oldReplyLanes, rx.replyLane)
	rx.replyLane, rx.replySent = 0, false
}

// detachLane removes lane i, which has failed, from s. It reports whether a message that the
// sender of rx waits for may be lost with it.
func (rx *rxConn) detachLane(i uint32) (lost bool) {
	if rx.replyLane == i {
		lost = rx.replySent
		rx.replyLane, rx.replySent = 0, false
	}
	if k := slices.Index(rx.oldReplyLanes, i); k >= 0 {
		rx.oldReplyLanes = slices.Delete(rx.oldReplyLanes, k, k+1)
		lost = true
	}
	return lost
}

// releaseReplyLane drops the reference of rx to its reply lane.
func (rx *rxConn) releaseReplyLane() {
	w := rx.w
	lane := rx.replyLane
	if rx.replyLane, rx.replySent = 0, false; lane != 0 {
		w.releaseReplyRef(lane)
	}
}

// releaseReplyRef drops an rx connection's reference to a lane. The last reference closes the
// lane, or leaves it draining while reads of memory are in progress.
func (w *thread) releaseReplyRef(lane uint32) {
	l := &w.lanes[lane]
	l.replyRefs--
	switch {
	case l.refs > 0 || l.replyRefs > 0:
	case l.uses == 0:
		w.closeLane(lane)
	case l.state == laneOpen:
		w.enterLane(lane, laneDraining)
	}
}

// rxConnClosed removes an rx connection. Its incomplete messages fail with reason.
func (wi *workerIface) rxConnClosed(id uint32, reason error) {
	rx := wi.rxConns[id]
	if rx == nil {
		return
	}
	w := wi.t
	rx.failRxConn(reason)
	if rx.failed {
		wi.rxChecks--
	}
	delete(wi.rxConns, id)
	wi.lastRx = nil
	rx.releaseReplyLane()
	left := rx.oldReplyLanes
	rx.oldReplyLanes = nil // closeLane looks at it
	for _, i := range left {
		w.releaseReplyRef(i)
	}
	w.releasePeer(rx.peer)
	w.releasePeer(rx.worker)
	w.rxConns[rx.index] = nil
	w.freeRxConns = append(w.freeRxConns, rx.index)
}

// failRxConn fails the messages and the data that were expected from s.
func (rx *rxConn) failRxConn(reason error) {
	rx.dropPartial(ucs.PeerFailed, reason)
	rx.failRendezvous(reason)
}

// saveReason stores reason as the error of the receive in slot i, whose message or data of the
// sender of rx will not arrive. nil: the error is that of the status.
func (rx *rxConn) saveReason(i uint32, reason error) {
	w := rx.w
	if reason == nil {
		return
	}
	e := &OpError{Op: w.slab.Slots[i].Op.String(), Err: reason}
	if p := rx.sender(); p != 0 {
		e.Peer = shortID(w.peers.UUID(p))
	}
	w.slab.saveErr(i, e)
}

// ignore has no further message of the rx connection delivered.
func (rx *rxConn) ignore() {
	if !rx.failed {
		rx.failed = true
		rx.iface.rxChecks++
	}
}

// protocolError fails an rx connection whose peer violated the protocol, and all lanes to that
// peer. Connections to other peers are not affected.
func (wi *workerIface) protocolError(rx *rxConn) {
	w := wi.t
	w.count.Inc(cntProtocolError)
	rx.ignore()
	rx.failRxConn(errProtocol)
	if rx.peer == 0 {
		return
	}
	for i := range w.lanes {
		if l := &w.lanes[i]; i != 0 && l.ep != nil && l.peer == rx.peer {
			w.failLane(uint32(i), errProtocol)
		}
	}
}
