package ucp

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// Failure of a connection.
//
// The transport reports it once, by HandleFailure, which ends the receive
// side (rxConnClosed). For the send side it moves the lane to another transport, if that
// is possible (lane failover, lane_failover.go). Otherwise it fails the lane, the other lanes
// to the same peer, and the endpoints that use them.
//
// Invariants:
//
//   - A lane fails once: laneFailed is left only to laneClosed. Later reports about it
//     have no effect.
//   - An endpoint whose lane failed refuses every operation from then on, also those that
//     its transports would still accept. So it closes the fast paths of its keys.
//   - A lane whose place another lane has taken (reconnectReplyLane) fails alone. Endpoints
//     of the peer that use the later lane do not fail.
//   - A peer that waits for a reply sent on the failed lane must not hang. So this side
//     disconnects the connection on which the peer's request arrived.

// errProtocol is the reason of a failure if the peer violated the protocol.
var errProtocol = fmt.Errorf("%w: it broke the protocol", ErrPeerFailed)

// HandleFailure handles the failure of a connection, in both directions.
func (wi *workerIface) HandleFailure(f uct.Failure) {
	w := wi.t
	w.count.Inc(cntFailures)
	reason := f.Err
	switch {
	case reason == nil:
		reason = ErrPeerClosed
	case errors.Is(reason, ErrRemoteAccess): // the peer refused an access and is alive
	case f.NeverConnected && !errors.Is(reason, ErrPeerFailed): // the peer was not reached
		reason = fmt.Errorf("%w: %w", ErrUnreachable, reason)
	case !errors.Is(reason, ErrPeerFailed):
		reason = fmt.Errorf("%w: %w", ErrPeerFailed, reason)
	}
	if f.RxConn != 0 {
		wi.rxConnClosed(f.RxConn, reason)
	}
	if f.Endpoint == nil {
		return
	}
	for i := range w.lanes {
		if l := &w.lanes[i]; l.transport() == f.Endpoint {
			if w.failOver(uint32(i), f) {
				w.endReported(uint32(i))
				return
			}
			peer := l.peer
			l.acked = f.Acked
			w.failPeer(uint32(i), reason)
			w.dropFromEndpoint(peer)
			return
		}
	}
}

// failPeer fails lane i and the other lanes to the same peer. Their transports may
// detect the failure much later, and their operations belong to endpoints that have
// failed. If the peer closed in order, a connected lane ends by itself, after the
// operations that the peer has acknowledged. Only a lane that is still connecting gets
// no reply any more and is failed.
func (w *thread) failPeer(i uint32, reason error) {
	peer := w.lanes[i].peer
	if w.lanes[i].state == laneFailed {
		return // the other lanes may belong to a later connection
	}
	superseded := w.laneOf.find(w.lanes, w.lanes[i].peer, w.lanes[i].iface) != i
	w.failLane(i, reason)
	if superseded { // the endpoints use the other lanes
		return
	}
	for k := range w.lanes {
		l := &w.lanes[k]
		if l.ep == nil || l.peer != peer || l.state == laneFailed {
			continue
		}
		if h, ok := l.transport().(uct.Handshaker); errors.Is(reason, ErrPeerClosed) && !(ok && h.Connecting()) {
			continue // it ends by itself
		}
		l.acked = errors.Is(reason, ErrPeerClosed) // nothing was sent on it
		w.cancelLane(uint32(k), reason)
	}
}

// cancelLane fails lane i, whose transport has not failed, and makes the transport drop its
// operations.
func (w *thread) cancelLane(i uint32, reason error) {
	for n := range w.slab.Slots {
		if s := &w.slab.Slots[n]; s.State == request.StateLive && s.Lane == i && s.Status == ucs.OK {
			s.Status = ucs.PeerFailed // FlushCancel would complete it with Canceled
		}
	}
	w.failLane(i, reason)
	for range 1000 { // the transport has no resources while its async goroutine is active
		if l := &w.lanes[i]; l.ep == nil || l.transport().Flush(uct.FlushCancel, 0) != ucs.NoResource {
			break
		}
		runtime.Gosched()
	}
}

// failLane fails the endpoints that use the lane and the operations that wait on it.
// The lane is closed when its last reference is released.
func (w *thread) failLane(i uint32, reason error) {
	l := &w.lanes[i]
	if l.state == laneFailed {
		return
	}
	w.enterLane(i, laneFailed)
	l.err = reason
	l.use() // the end of an operation below must not close the lane
	superseded := w.laneOf.find(w.lanes, w.lanes[i].peer, w.lanes[i].iface) != i
	w.laneOf.remove(w.lanes, i)
	for k := range w.eps {
		s := &w.eps[k]
		if s.peer != l.peer {
			continue
		}
		if s.lane != 0 && s.state == epActive && (!superseded || s.lane == i) {
			w.failEndpoint(uint32(k), ucs.PeerFailed, reason)
		}
		if s.state == epFailed && w.loses(uint32(k), i) {
			s.lost = true
		}
	}
	w.failTiedRecvs()
	w.completeUnacked(i, ucs.PeerFailed)
	w.purgeLane(i, ucs.PeerFailed)
	for _, rx := range w.rxConns { // the next reply opens another lane
		if rx != nil && rx.detachLane(i) && !errors.Is(reason, ErrPeerClosed) {
			rx.iface.iface.Disconnect(rx.id) // its sender does not know of the loss and would wait forever
		}
	}
	l = &w.lanes[i]
	l.unuse()
	if l.replyRefs = 0; l.refs == 0 {
		w.drainLane(i)
	}
	w.endReported(i)
}

// failEndpoint makes endpoint k refuse all operations with st, because of err. Its
// transport may still be operational, so the fast paths would not detect it. The caller
// calls failTiedRecvs afterwards.
func (w *thread) failEndpoint(k uint32, st ucs.Status, err error) {
	s := &w.eps[k]
	c := w.cold.of(k)
	c.err, c.lane = err, s.lane
	w.enterEndpoint(k, epFailed)
	s.status, s.lane = st, 0
	for o := range c.owned {
		if key, ok := o.(*RemoteKey); ok {
			key.closeFast()
		}
	}
	if c.onFailure != nil {
		w.callbacks.failures = append(w.callbacks.failures, failureCall{w.handle(k), c.onFailure, err})
		w.polling.moreWork = true
	}
}

// failTiedRecvs completes the unmatched receives that are tied to failed endpoints. One that
// is tied to all endpoints completes with the first that has failed.
func (w *thread) failTiedRecvs() {
	failed := uint32(0)
	for k := range w.eps {
		if w.eps[k].state == epFailed {
			failed = uint32(k)
			break
		}
	}
	if failed == 0 {
		return
	}
	for i := range w.slab.Slots {
		s := &w.slab.Slots[i]
		if s.State != request.StateLive || s.Flags&request.FlagTied == 0 {
			continue
		}
		if s.EP == 0 && w.matching.posted.Has(uint32(i)) {
			s.EP = failed
		}
		if st := w.eps[s.EP].status; st != ucs.OK && w.matching.posted.Remove(uint32(i)) {
			w.end(uint32(i), st)
		}
	}
}

// reason returns the error for operations of endpoint k that complete with st.
func (w *thread) reason(k uint32, st ucs.Status) error {
	if c := w.cold[k]; k != 0 && c != nil && c.err != nil && st == w.eps[k].status {
		return c.err
	}
	return statusErr(st)
}

// slotErr returns the error of the operation in slot i, which failed.
func (w *thread) slotErr(i uint32) error {
	if err := w.slab.errs[i]; err != nil {
		return err
	}
	s := &w.slab.Slots[i]
	e := &OpError{Op: s.Op.String(), Peer: w.peerName(s.EP), Lane: w.laneName(s.Lane), Err: w.reason(s.EP, s.Status)}
	if l := &w.lanes[s.Lane]; s.EP == 0 && l.ep != nil {
		e.Peer = shortID(w.peers.UUID(l.peer))
		if s.Status == l.status() && l.err != nil {
			e.Err = l.err
		}
	}
	return e
}

// saveErr stores the error of slot i. It is called before the state is released from
// which slotErr would make it.
func (b *slab) saveErr(i uint32, err error) {
	b.errs[i] = err
	b.Slots[i].Flags |= request.FlagExtra
}

// refusal returns the error of a request that was refused at the call.
func (r Request) refusal() error {
	w, id := r.t, r.id
	st, op, k := ucs.Status(id>>56&0x7f), request.Kind(id>>48), uint32(id)
	e := &OpError{Op: op.String(), Err: statusErr(st)}
	if int(k) < len(w.eps) && k != 0 && w.eps[k].state != epFree && uint16(w.eps[k].gen) == uint16(id>>32) {
		e.Peer, e.Err = w.peerName(k), w.reason(k, st)
		if c := w.cold[k]; c != nil {
			e.Lane = w.laneName(c.lane)
		}
	}
	return e
}

// A transport ends the operations of a failed connection, and refuses new ones, before it reports
// the failure, and only the report has the reason. If such an operation completed at once, its
// callback, waiters and flush would receive the bare ErrPeerFailed. So it completes with the report.
//
// Invariant: an operation in thread.unreported is live, and the transport has released its
// buffer. endReported completes it, after the report or when its lane closes.

// awaitReport lets the operation in slot i complete with the report of its lane's failure. Until
// then its status is PeerFailed.
func (w *thread) awaitReport(i uint32) {
	w.clearPending(i)
	w.slab.Slots[i].Status = ucs.PeerFailed
	w.unreported = append(w.unreported, w.slab.ID(i))
}

// mustAwaitReport reports whether the operation in slot i, which has failed with PeerFailed, must
// await the report, and has it do so. That is the case if the transport knows that the connection has
// failed and has not reported it yet.
//
//go:noinline
func (w *thread) mustAwaitReport(i uint32) bool {
	s := &w.slab.Slots[i]
	l := &w.lanes[s.Lane]
	// The status of an operation that has awaited the report is PeerFailed already.
	if s.Status == ucs.PeerFailed || l.ep == nil || l.state == laneFailed || l.transport().Check(0) != ucs.PeerFailed {
		return false
	}
	w.awaitReport(i)
	return true
}

// endReported completes the operations of lane i that waited for the report of its failure.
// It is also called if the lane closes and no report will come.
func (w *thread) endReported(i uint32) {
	all := w.unreported
	w.unreported = nil
	for _, id := range all {
		k := w.slab.Find(id)
		switch s := &w.slab.Slots[k]; {
		case k == 0 || s.State != request.StateLive: // an abort completed it
		case s.Lane != i:
			w.unreported = append(w.unreported, id)
		default:
			if s.Op != request.Flush {
				w.eps[s.EP].lost = true
			}
			w.end(k, w.flushStatus(k, s.Status))
		}
	}
}
