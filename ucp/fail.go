package ucp

import (
	"errors"
	"fmt"
	"runtime"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// errGarbage is the reason where a peer broke the protocol.
var errGarbage = fmt.Errorf("%w: it broke the protocol", ErrPeerFailed)

// errHungUp is the reason where a peer closed in order.
var errHungUp = fmt.Errorf("%w: it closed the connection", ErrPeerFailed)

// connectionFailed ends what the connection carried, in both directions.
func (w *Worker) connectionFailed(p *port, f uct.Failure) {
	reason := f.Err
	switch {
	case reason == nil:
		reason = errHungUp
	case errors.Is(reason, ErrRemoteAccess): // the peer refused something and lives
	case f.Unused && !errors.Is(reason, ErrPeerFailed): // it was not reached
		reason = fmt.Errorf("%w: %w", ErrUnreachable, reason)
	case !errors.Is(reason, ErrPeerFailed):
		reason = fmt.Errorf("%w: %w", ErrPeerFailed, reason)
	}
	if f.Source != 0 {
		p.sourceEnded(f.Source, reason)
	}
	if f.Endpoint == nil {
		return
	}
	for i := range w.t.lanes {
		if l := &w.t.lanes[i]; l.transport() == f.Endpoint {
			if w.replaces(uint32(i), f) {
				w.endReported(uint32(i))
				return
			}
			peer := l.peer
			w.failPeer(uint32(i), reason)
			w.forgetFrom(peer)
			return
		}
	}
}

// failPeer fails lane i, and the others to the same peer with it: their transports
// may take long to find out, and their operations are of endpoints that failed. Where
// the peer closed in order, a connected lane ends by itself, after what the peer has
// acknowledged; only a lane that is still connecting gets no answer any more.
func (w *Worker) failPeer(i uint32, reason error) {
	peer := w.t.lanes[i].peer
	if w.t.lanes[i].status != ucs.OK {
		return // others may be of a later connection
	}
	left := w.leftLane(i)
	w.failLane(i, reason)
	if left { // others are
		return
	}
	for k := range w.t.lanes {
		l := &w.t.lanes[k]
		if l.ep == nil || l.peer != peer || l.status != ucs.OK || errors.Is(reason, errHungUp) && !l.connecting() {
			continue
		}
		for n := range w.slab.slots {
			if s := &w.slab.slots[n]; s.state == slotLive && s.lane == uint32(k) && s.status == ucs.OK {
				s.status = ucs.PeerFailed // and not that it was canceled
			}
		}
		w.failLane(uint32(k), reason)
		if l = &w.t.lanes[k]; l.ep != nil {
			l.cancel()
		}
	}
}

// connecting reports whether the peer has not accepted the lane's connection yet.
func (l *lane) connecting() bool {
	h, ok := l.transport().(uct.Handshaker)
	return ok && h.Connecting()
}

// failLane fails the connected endpoints to the lane's peer and what waits on
// the lane. The lane itself is closed with the last of them.
func (w *Worker) failLane(i uint32, reason error) {
	l := &w.t.lanes[i]
	if l.status != ucs.OK {
		return
	}
	l.status, l.err, l.short = ucs.PeerFailed, reason, -1
	left := w.leftLane(i)
	w.forgetLane(i)
	for k := range w.eps {
		if s := &w.eps[k]; s.inUse && s.lane != 0 && s.peer == l.peer && s.status == ucs.OK && (!left || s.lane == i) {
			w.failEndpoint(uint32(k), ucs.PeerFailed, reason)
		}
	}
	w.endTied()
	w.endSends(i, ucs.PeerFailed)
	w.purgeLane(i, ucs.PeerFailed)
	for _, s := range w.sources { // the next answer finds another
		if s != nil && s.unreplied(i) && !errors.Is(reason, errHungUp) {
			s.port.iface.Disconnect(s.id) // else its sender waits for ever: he does not know
		}
	}
	l = &w.t.lanes[i]
	if l.replies = 0; l.refs == 0 && l.ep != nil {
		w.partLane(i)
	}
	w.endReported(i)
}

// leftLane reports whether another lane stands where i stood: see anotherReply.
func (w *Worker) leftLane(i uint32) bool {
	l := &w.t.lanes[i]
	return w.laneTo(l.peer, l.port) != i
}

// cancel has the transport give up what it has of a failed lane. Where its async
// goroutine is at work for a moment, it is asked again.
func (l *lane) cancel() {
	for range 1000 {
		if l.transport().Flush(uct.FlushCancel, 0) != ucs.NoResource {
			return
		}
		runtime.Gosched()
	}
}

// failEndpoint makes endpoint k refuse everything with st, for the reason err:
// its transport may be as good as before, so the fast paths do not find out.
// endTied is to follow.
func (w *Worker) failEndpoint(k uint32, st ucs.Status, err error) {
	s := &w.eps[k]
	c := w.coldOf(k)
	c.err, c.lane = err, s.lane
	s.status, s.lane = st, 0
	for o := range c.owned {
		if key, ok := o.(*RemoteKey); ok {
			key.closeFast()
		}
	}
	if c.onFailure != nil {
		w.am.failed = append(w.am.failed, failedCall{w.handle(k), c.onFailure, err})
		w.odd = true
	}
}

// endTied ends the unmatched receives tied to endpoints that failed.
func (w *Worker) endTied() {
	for i := range w.slab.slots {
		s := &w.slab.slots[i]
		if s.state != slotLive || s.flags&flagTied == 0 {
			continue
		}
		if st := w.eps[s.ep].status; st != ucs.OK && w.posted.Remove(uint32(i)) {
			w.end(uint32(i), st)
		}
	}
}

// reason is why operations of endpoint k end with st.
func (w *Worker) reason(k uint32, st ucs.Status) error {
	if c := w.cold[k]; k != 0 && c != nil && c.err != nil && st == w.eps[k].status {
		return c.err
	}
	return statusErr(st)
}

// slotErr makes the error of the operation in slot i, which ended badly.
func (w *Worker) slotErr(i uint32) error {
	if err := w.slab.errs[i]; err != nil {
		return err
	}
	s := &w.slab.slots[i]
	e := &OpError{Op: s.op.info().name, Peer: w.peerName(s.ep), Lane: w.laneName(s.lane), Err: w.reason(s.ep, s.status)}
	if l := &w.t.lanes[s.lane]; s.ep == 0 && l.ep != nil {
		e.Peer = shortID(w.peers.UUID(l.peer))
		if s.status == l.status && l.err != nil {
			e.Err = l.err
		}
	}
	return e
}

// keepErr fixes the error of slot i, because what it is made from goes away.
func (w *Worker) keepErr(i uint32, err error) {
	w.slab.errs[i] = err
	w.slab.slots[i].flags |= flagAside
}

// refusal makes the error of a request that was refused at the call.
func (w *Worker) refusal(id uint64) error {
	st, op, k := ucs.Status(id>>56&0x7f), opKind(id>>48), uint32(id)
	e := &OpError{Op: op.info().name, Err: statusErr(st)}
	if int(k) < len(w.eps) && k != 0 && w.eps[k].inUse && uint16(w.eps[k].gen) == uint16(id>>32) {
		e.Peer, e.Err = w.peerName(k), w.reason(k, st)
		if c := w.cold[k]; c != nil {
			e.Lane = w.laneName(c.lane)
		}
	}
	return e
}
