package soft

import (
	"math/bits"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// responder is the side of a queue pair that executes requests.
type responder struct {
	psn       verbs.PSN // the expected PSN
	msn       uint32
	lastPlace wire.Place // position of the last packet in its message: it decides what may follow
	kind      wire.Kind  // of the message being received
	hasRecv   bool       // recv is consumed and not completed
	recv      recvWQE
	received  uint32 // bytes of recv that are filled, or bytes of the WRITE received
	addr      uint64 // of the WRITE's next byte
	key       uint32
	remaining uint32 // bytes of the WRITE not yet received
	minTimer  uint8

	// Recent READs and atomics, so that lost responses can be sent again.
	saved            [maxDestRdAtomic]savedRequest // by running number
	maxSaved         uint32                        // how many are kept; Modify may change it
	numSaved         uint32                        // running number of the next entry
	pendingResponses uint16                        // bit i: the response saved[i] is to be sent

	// ACK state: the pending acknowledgement, which may be delayed.
	ack         verbs.PSN     // PSN of the ACK: never that of a READ or atomic
	ackPending  bool          // an ACK or NAK is pending
	ackNow      bool          // it is not delayed any more
	longAckReq  bool          // the last packet belongs to a long message and had AckReq
	nak         wire.Syndrome // the pending NAK or RNR NAK; 0: an ACK
	gap         gapState
	unacked     uint32 // message ends and packets with AckReq since the last ACK
	unackedRun  uint32 // the same since the last request or ACK was sent to the peer
	ackDeadline ucs.Time
	fatal       bool // a request was refused: the QP enters the error state once the NAK is sent

	// Requests whose predecessors are missing: reorder.go.
	reorder       reorderBuffer
	laterArrivals int      // requests received since the gap opened
	gapDeadline   ucs.Time // when an open gap is reported
}

// maxDestRdAtomic is how many READs and atomics of the peer are kept at most.
const maxDestRdAtomic = 16

// Delayed ACKs. Without AckReq a responder acknowledges after ackPackets packets in a
// row, or after ackDelay. If requests of its own are sent between them, these imply
// ACKs for the peer's program. The limits are then ackPacketsImplied packets and ackDelayImplied. A
// piggybacked ACK costs no packet: half as many suffice for it.
const (
	ackPackets        = 4
	ackDelay          = ucs.Time(20_000)
	ackPacketsImplied = 16
	ackDelayImplied   = 10 * ackDelay
)

// handleRequest processes a request of the peer: it executes the expected one, and passes
// duplicates and requests out of order on.
func (q *qp) handleRequest(p *packet, info *wire.Info, now ucs.Time) {
	r := &q.rsp
	if !q.established {
		q.established = true
		if q.loadState() == verbs.StateRTR {
			q.d.raise(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: q})
		}
	}
	if r.fatal {
		return
	}
	switch d := p.PSN.Diff(r.psn); {
	case d > 0:
		q.count(cntOutOfSequence, 1)
		q.outOfOrder(p, now)
		return
	case d < 0:
		q.count(cntDuplicates, 1)
		q.handleDuplicate(p, info)
		if len(r.reorder.packets) != 0 {
			q.reportGap() // probably a probe: the NAK may be lost
		}
		return
	}
	if !q.fitsMessage(info) {
		q.rejectRequest(wire.NakInvalid)
		return
	}
	ok := false
	switch info.Kind {
	case wire.KindSend:
		ok = q.executeSend(p, info)
	case wire.KindWrite:
		ok = q.executeWrite(p, info)
	case wire.KindReadRequest:
		ok = q.executeRead(p)
	default:
		ok = q.executeAtomic(p)
	}
	if !ok {
		return
	}
	r.kind, r.lastPlace = info.Kind, info.Place
	if r.gap != noGap {
		r.gapFilled()
	}
	if info.Kind == wire.KindReadRequest || info.Kind == wire.KindAtomic {
		return // the response acknowledges
	}
	q.updateAckState(p.AckReq, info.Place, now)
}

// updateAckState updates the ACK state after a SEND or WRITE packet was executed. asked is set
// if the packet had AckReq.
func (q *qp) updateAckState(ackReq bool, place wire.Place, now ucs.Time) {
	r := &q.rsp
	r.ack, r.psn = r.psn, r.psn.Add(1)
	if !ackReq && !place.Ends() {
		return // the last packet of its segment batch has AckReq
	}
	r.unacked++
	r.unackedRun++
	q.req.impliedAcks++
	r.ackPending, r.longAckReq = true, place != wire.PlaceOnly && ackReq
	switch {
	case ackReq || r.unackedRun >= ackPackets || r.unacked >= ackPacketsImplied:
		r.ackNow = true
	case r.unackedRun > 2 || r.unackedRun == 1 && r.unacked > 1: // the timer runs already
	case r.unackedRun == 2:
		r.ackDeadline = now + ackDelay
		q.d.setTimer(q, r.ackDeadline)
	default:
		r.ackDeadline = now + ackDelayImplied
		q.d.setTimer(q, r.ackDeadline)
	}
}

// fitsMessage reports whether a packet may follow the last one in message order.
func (q *qp) fitsMessage(info *wire.Info) bool {
	r := &q.rsp
	open := !r.lastPlace.Ends()
	if info.Place.Begins() {
		return !open
	}
	return open && r.kind == info.Kind
}

// rejectRequest schedules a NAK and raises the event for it. The queue pair enters the error
// state once the NAK is sent.
func (q *qp) rejectRequest(s wire.Syndrome) {
	r := &q.rsp
	r.nak, r.ackPending, r.ackNow, r.fatal = s, true, true, true
	q.count(cntNaks, 1)
	ev := verbs.EventQPReqErr
	if s == wire.NakRemoteAccess {
		ev = verbs.EventQPAccessErr
	}
	q.d.raise(verbs.AsyncEvent{Type: ev, QP: q})
}

// consumeRecv consumes a receive for the current message. If there is none it schedules an
// RNR NAK and returns false.
func (q *qp) consumeRecv() bool {
	r := &q.rsp
	if r.hasRecv {
		return true
	}
	r.hasRecv = q.popRecv(&r.recv)
	if !r.hasRecv {
		r.nak, r.ackPending, r.ackNow = wire.RNR(r.minTimer), true, true
		r.gap = gapRNR // later requests are dropped: the requester retransmits them
		q.count(cntRNRNaks, 1)
	}
	return r.hasRecv
}

// popRecv consumes the next receive of the queue pair's own queue or of the SRQ.
func (q *qp) popRecv(w *recvWQE) bool {
	if q.srq != nil {
		return q.srq.pop(w)
	}
	return q.rq.pop(w)
}

// executeSend executes a SEND packet. It returns false if the packet was refused, or if no
// receive is posted.
func (q *qp) executeSend(p *packet, info *wire.Info) bool {
	r := &q.rsp
	if info.Place.Begins() {
		if !q.consumeRecv() {
			return false
		}
		r.received = 0
	}
	if !q.lengthFits(p, info.Place) {
		q.rejectRequest(wire.NakInvalid)
		return false
	}
	if int(r.received)+p.n > min(sgLen(r.recv.sg[:r.recv.nsg]), int(q.d.attr.MaxMessage)) {
		q.failRecv(verbs.WCLocLenErr, wire.NakInvalid)
		return false
	}
	if !q.placeSingle(p, info) && !q.scatter(q.recvPD, r.recv.sg[:r.recv.nsg], int(r.received), p, info.Place.Ends()) {
		q.failRecv(verbs.WCLocProtErr, wire.NakRemoteOp)
		return false
	}
	r.received += uint32(p.n)
	if !info.Place.Ends() {
		return true
	}
	if info.Headers&wire.HasIETH != 0 && !q.d.invalidate(q.pd, p.ImmDt) {
		q.failRecv(verbs.WCLocProtErr, wire.NakRemoteAccess)
		return false
	}
	r.msn++
	r.hasRecv = false
	flags := verbs.WCFlags(0)
	if info.Headers&wire.HasImm != 0 {
		flags = verbs.WCWithImm
	} else if info.Headers&wire.HasIETH != 0 {
		flags = verbs.WCWithInv
	}
	c := verbs.WC{ID: r.recv.id, Op: verbs.WCRecv, Flags: flags, Len: r.received, Imm: p.ImmDt, QPN: q.num}
	if flags == 0 {
		c.Imm = 0
	}
	q.postCQE(q.recvCQ, &c, p.Solicited)
	q.count(cntCQEs, 1)
	return true
}

// lengthFits checks a packet's payload length against its position in the message.
func (q *qp) lengthFits(p *packet, place wire.Place) bool {
	switch place {
	case wire.PlaceOnly:
		return p.n <= q.mtu
	case wire.PlaceLast:
		return p.n > 0 && p.n <= q.mtu
	default:
		return p.n == q.mtu
	}
}

// executeWrite executes a WRITE packet. It returns false if the packet was refused, or if
// it needs a receive and none is posted.
func (q *qp) executeWrite(p *packet, info *wire.Info) bool {
	r := &q.rsp
	if q.access&verbs.RemoteWrite == 0 {
		q.rejectRequest(wire.NakRemoteAccess)
		return false
	}
	if info.TakesRecv && !q.consumeRecv() {
		return false
	}
	if info.Place.Begins() {
		r.addr, r.key, r.remaining, r.received = p.VA, p.RKey, p.DMALen, 0
		if p.DMALen > q.d.attr.MaxMessage {
			q.rejectRequest(wire.NakInvalid)
			return false
		}
		if p.DMALen > 0 {
			if _, ok := q.d.remote(q.pd, p.RKey, p.VA, int(p.DMALen), verbs.RemoteWrite); !ok {
				q.rejectRequest(wire.NakRemoteAccess)
				return false
			}
		}
	}
	if !q.lengthFits(p, info.Place) || uint32(p.n) > r.remaining || info.Place.Ends() != (uint32(p.n) == r.remaining) {
		q.rejectRequest(wire.NakInvalid)
		return false
	}
	if p.n > 0 {
		b, ok := q.d.remote(q.pd, r.key, r.addr, p.n, verbs.RemoteWrite)
		if !ok {
			q.rejectRequest(wire.NakRemoteAccess)
			return false
		}
		q.placePayload(b, p, 0, p.n, info.Place.Ends())
		r.addr += uint64(p.n)
		r.remaining -= uint32(p.n)
		r.received += uint32(p.n)
	}
	if !info.Place.Ends() {
		return true
	}
	r.msn++
	if info.TakesRecv {
		r.hasRecv = false
		c := verbs.WC{ID: r.recv.id, Op: verbs.WCRecvImm, Flags: verbs.WCWithImm, Len: r.received, Imm: p.ImmDt, QPN: q.num}
		q.postCQE(q.recvCQ, &c, p.Solicited)
		q.count(cntCQEs, 1)
	}
	return true
}

// saveRequest stores a READ or atomic request, so that its response can be sent again. It
// returns nil if the peer has too many outstanding; the request is refused then.
func (q *qp) saveRequest(p *packet, npk uint32) *savedRequest {
	r := &q.rsp
	for bits.OnesCount16(r.pendingResponses) >= int(max(r.maxSaved, 1)) && r.saved[r.oldestPending()].completed {
		r.pendingResponses &^= 1 << r.oldestPending() // the peer has that response: otherwise it would not send another request
	}
	if bits.OnesCount16(r.pendingResponses) >= int(r.maxSaved) {
		q.rejectRequest(wire.NakInvalid)
		return nil
	}
	r.msn++
	a := &r.saved[r.numSaved%maxDestRdAtomic]
	*a = savedRequest{psn: p.PSN, npk: npk, key: p.RKey, addr: p.VA, n: p.DMALen, msn: r.msn}
	return a
}

// executeRead checks a READ request and schedules its response.
func (q *qp) executeRead(p *packet) bool {
	r := &q.rsp
	if q.access&verbs.RemoteRead == 0 {
		q.rejectRequest(wire.NakRemoteAccess)
		return false
	}
	if p.DMALen > q.d.attr.MaxMessage {
		q.rejectRequest(wire.NakInvalid)
		return false
	}
	if p.DMALen > 0 {
		if _, ok := q.d.remote(q.pd, p.RKey, p.VA, int(p.DMALen), verbs.RemoteRead); !ok {
			q.rejectRequest(wire.NakRemoteAccess)
			return false
		}
	}
	npk := max(1, (p.DMALen+uint32(q.mtu)-1)/uint32(q.mtu))
	a := q.saveRequest(p, npk)
	if a == nil {
		return false
	}
	a.read = true
	r.pendingResponses |= 1 << (r.numSaved % maxDestRdAtomic)
	r.numSaved++
	r.psn = r.psn.Add(int(npk))
	return true
}

// executeAtomic executes an atomic request and schedules its response.
func (q *qp) executeAtomic(p *packet) bool {
	r := &q.rsp
	if q.access&verbs.RemoteAtomic == 0 {
		q.rejectRequest(wire.NakRemoteAccess)
		return false
	}
	if p.VA&7 != 0 {
		q.rejectRequest(wire.NakInvalid)
		return false
	}
	b, ok := q.d.remote(q.pd, p.RKey, p.VA, 8, verbs.RemoteAtomic)
	if !ok {
		q.rejectRequest(wire.NakRemoteAccess)
		return false
	}
	a := q.saveRequest(p, 1)
	if a == nil {
		return false
	}
	if p.Opcode == wire.FetchAdd {
		a.atomicOld, ok = fetchAdd(b, p.SwapDt)
	} else {
		a.atomicOld, ok = compareSwap(b, p.CmpDt, p.SwapDt)
	}
	if !ok {
		q.rejectRequest(wire.NakInvalid) // the memory behind the address is not aligned
		return false
	}
	r.pendingResponses |= 1 << (r.numSaved % maxDestRdAtomic)
	r.numSaved++
	r.psn = r.psn.Add(1)
	return true
}

// completeRecv completes the current receive with status s.
func (q *qp) completeRecv(s verbs.WCStatus) {
	c := verbs.WC{ID: q.rsp.recv.id, Status: s, Op: verbs.WCRecv, QPN: q.num}
	q.postCQE(q.recvCQ, &c, false)
	q.count(cntCQEs, 1)
}

// failRecv completes the receive with a local error and refuses the request.
func (q *qp) failRecv(s verbs.WCStatus, nak wire.Syndrome) {
	q.rsp.hasRecv = false
	q.completeRecv(s)
	q.rejectRequest(nak)
}
