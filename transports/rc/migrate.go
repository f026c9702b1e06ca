package rc

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// A connection moves from one QP to another when it resumes after a suspension, and each
// direction moves by itself. The sender posts a switch-over marker as its last message on the
// old QP, and its next messages on the new one. The receiver delivers the messages of the new
// QP only after it has read the marker. Messages that arrive there earlier are kept in
// connQP.outOfOrder.
//
// Invariant: messages are delivered in the order in which they were sent, over all QPs of the
// connection.
//
// A QP that neither direction uses is retired, but not destroyed at once: it is draining. If
// this side destroyed it while the peer still retransmits, the peer would get no ACK and report
// this side as failed. So a side sends DRAINED, by datagram, when none of its operations is in
// flight on the QP. It destroys the QP when it has both sent and received DRAINED. DRAINED may
// be lost: it is retransmitted every drainInterval. A peer that does not send it is waited for as
// long as its retries can last.
//
// A QP on which this side sent nothing, or whose connection was released, needs no DRAINED. It
// is destroyed after drainInterval, or at the latest after drainTimeout.

const (
	// drainInterval is the retention time of a retired QP that needs no DRAINED message, and the
	// retransmission interval of DRAINED. drainTimeout bounds how long a QP of a released
	// connection waits for ACKs.
	drainInterval, drainTimeout = 500 * time.Millisecond, 20 * time.Second
	// ackTimerFactor is the factor by which a device may exceed its ACK timeout, as IBTA vol. 1 allows.
	ackTimerFactor = 4
)

// qp returns the QP with that id, or nil.
func (e *ep) qp(id machine.PairID) *connQP {
	for _, p := range e.qps {
		if p.id == id {
			return p
		}
	}
	return nil
}

// switchTx moves the sending direction to another QP, or to none. The marker is the last message
// on the old QP.
func (e *ep) switchTx(id machine.PairID) {
	if e.txQueue != nil {
		e.txQueue.postControl(idMarker, uint64(id))
		e.oldTxQueue = e.txQueue
	}
	e.txQueue = nil
	if p := e.qp(id); p != nil {
		if err := p.allocQueue(); err != nil { // the connection was half-open
			e.f.FailLater(e, err)
			return
		}
		e.txQueue = &p.q
		e.Add(everConnected)
	}
	e.updateFastPath()
	if e.pend.Len() > 0 && e.txQueue == nil {
		e.ensureConnected()
	}
}

// postControl posts a control message. reservedSlots of the queue are reserved for those.
func (q *sendQueue) postControl(id, hdr uint64) {
	w := q.nextWR()
	binary.LittleEndian.PutUint64(w.Inline[:], hdr)
	binary.LittleEndian.PutUint64(w.Inline[offID:], id)
	w.Op, w.NumSG, w.InlineLen = verbs.OpSend, 0, headerLen
	q.takeSlot(slotControl, 0, 0)
	q.post(w, verbs.SendInline|verbs.SendSignaled)
}

// handleControl processes a control message of the peer.
func (e *ep) handleControl(p *connQP, id, hdr uint64) {
	switch {
	case e.Life.Over():
	case id == idMarker && hdr>>32 == 0:
		e.step(machine.Event{Kind: machine.EventMarker, Pair: machine.PairID(hdr)})
	case id == idShutdown:
		e.f.FailLater(e, conn.ErrPeerClosed)
	default:
		e.f.stats.Inc(statGarbage)
		e.f.FailLater(e, conn.PeerFailed("it sent an unknown control message"))
	}
	p.updateFastRecv()
}

// retire retires a QP. It drains until both sides' operations on it are acknowledged.
func (e *ep) retire(id machine.PairID) {
	p := e.qp(id)
	if p == nil {
		return
	}
	e.qps = slices.DeleteFunc(e.qps, func(q *connQP) bool { return q == p })
	if e.txQueue == &p.q {
		e.txQueue = nil
		e.updateFastPath()
	}
	e.f.startDraining(p)
}

func (f *iface) startDraining(p *connQP) {
	p.life.step(qpRetire)
	p.retiredAt = ucs.Now()
	p.drainedSentAt = p.retiredAt.Add(-drainInterval)
	p.updateFastRecv()
	f.draining = append(f.draining, p)
}

// reapDraining sends DRAINED for draining QPs that have no operation in flight, and destroys those that
// have drained.
func (f *iface) reapDraining(now ucs.Time) {
	for _, p := range f.draining {
		if p.q.head == p.q.tail && p.needsDrained() && now.Sub(p.drainedSentAt) >= drainInterval && !f.ud.full() {
			p.drainedSentAt = now
			p.e.sendDrained(p.id, !p.peerDrained)
		}
		// Until it has drained, the QP acknowledges what the peer retransmits.
		age, drained := now.Sub(p.retiredAt), false
		switch {
		case p.inError, p.e.Life == conn.Released && age >= drainTimeout:
			drained = true
		case p.q.head != p.q.tail:
		case !p.needsDrained():
			drained = age >= drainInterval
		default:
			drained = p.peerDrained || age >= drainInterval+ackTimerFactor*f.retryTime()
		}
		if drained {
			p.close(ucs.Canceled)
		}
	}
	f.removeClosed()
}

// removeClosed removes closed QPs from the draining ones.
func (f *iface) removeClosed() {
	f.draining = slices.DeleteFunc(f.draining, func(p *connQP) bool { return p.life == qpClosed })
}

// needsDrained reports whether both sides wait for DRAINED. They do not if this side posted nothing on
// the QP: a QP that was in use is left with a marker. Nor do they after the connection was
// released.
func (p *connQP) needsDrained() bool { return p.q.tail != 0 && p.e.Life != conn.Released }

// sendDrained sends DRAINED: none of this side's operations is in flight on the QP, nor will be.
// wantReply: this side waits for the DRAINED of the peer.
func (e *ep) sendDrained(id machine.PairID, wantReply bool) {
	m, flags := machine.Msg{Worker: e.f.worker, From: e.M.Conn(), To: e.M.Remote(), Pair: id}, flagDrained
	if wantReply {
		flags |= flagWantReply
	}
	e.f.sendConnMsg(&connMsg{msg: m, flags: flags}, &e.peer, e.ah)
}
