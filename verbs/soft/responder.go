package soft

import (
	"math/bits"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The responder executes the peer's requests. handleRequest takes a packet;
// receiveFast (fastpath.go) is its short form for the usual message of one packet.
// reply.go sends responses and ACKs, reorder.go handles loss.
//
// Invariants:
//   - psn is the PSN of the next request to execute. Requests execute in PSN order and
//     at most once. A request before psn is a duplicate; one after psn shows that a
//     packet is missing.
//   - Nothing is executed in part. A packet is checked completely before its payload is
//     placed, and psn advances only after that. A packet that is refused, or that finds
//     no posted receive, leaves psn as it is.
//   - A READ takes one PSN for each packet of its response, and an atomic takes one.
//     Both are saved before psn passes them, so a duplicate is answered from memory and
//     never executed again.
//   - After a refusal (rspRefused) no further request executes. The QP enters the error
//     state once the NAK is sent.

// responder is the side of a queue pair that executes requests.
type responder struct {
	psn        verbs.PSN // the expected PSN
	msn        uint32
	flags      rspFlags
	kind       wire.Kind // of the message being received
	gap        gapState
	ackState   ackState
	longAckReq bool // the last packet belongs to a long message and had AckReq
	minTimer   uint8
	ack        verbs.PSN     // PSN of the ACK: never that of a READ or atomic
	nak        wire.Syndrome // the pending NAK or RNR NAK; 0: an ACK
	unacked    uint32        // message ends and packets with AckReq since the last ACK
	unackedRun uint32        // the same since the last request or ACK was sent to the peer

	recv      recvWQE
	received  uint32 // bytes of recv that are filled, or bytes of the WRITE received
	addr      uint64 // of the WRITE's next byte
	key       uint32
	remaining uint32 // bytes of the WRITE not yet received

	// Recent READs and atomics, so that lost responses can be sent again.
	saved            [maxDestRdAtomic]savedRequest // by running number
	maxSaved         uint32                        // how many are kept; Modify may change it
	numSaved         uint32                        // running number of the next entry
	pendingResponses uint16                        // bit i: the response saved[i] is to be sent

	ackDeadline ucs.Time // when a delayed ACK becomes due

	// Requests whose predecessors are missing: reorder.go.
	reorder       reorderBuffer
	laterArrivals int      // requests received since the gap opened
	gapDeadline   ucs.Time // when an open gap is reported
}

// rspFlags is what is unusual about the next request. The responder's fast path is open
// if the set is empty and no request is missing.
type rspFlags uint8

const (
	rspFirstPacket rspFlags = 1 << iota // no request has been received yet: EventCommEst is to be raised
	rspMidMessage                       // the message is not complete: only its next packet may follow
	rspRecvHeld                         // recv is consumed and not completed
	rspRefused                          // a request was refused: the QP enters the error state once the NAK is sent
)

// newResponder returns a responder that has received nothing.
func newResponder() responder { return responder{flags: rspFirstPacket} }

// ackState is the state of the pending acknowledgement.
//
//	none ──message──▶ delayed ──limit, deadline, AckReq──▶ due
//	  ▲                  └──────sent, alone or piggybacked──────┘
type ackState uint8

const (
	ackNone    ackState = iota // nothing to acknowledge
	ackDelayed                 // an ACK waits for more messages, ackDeadline or a request to be piggybacked on
	ackDue                     // an ACK or NAK is sent next
)

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

// handleRequest processes a request of the peer. It executes the expected one,
// acknowledges duplicates again, and keeps or drops requests after a missing one. The
// caller owns the queue pair.
//
// The steps are: order, place in the message, rights and memory, payload, state,
// completion, acknowledgement. A step that fails schedules a NAK and returns. The
// requester sees the first failure alone, so the order of the checks is part of the
// protocol: a SEND without a receive gets an RNR NAK before its length is checked.
//
// A packet of a WRITE may stand for several of the same payload length (handleBatch).
// It is the expected one then.
func (q *qp) handleRequest(p *packet, info *wire.Info, now ucs.Time) {
	r := &q.rsp
	if r.flags&rspFirstPacket != 0 {
		r.flags &^= rspFirstPacket
		if q.loadState() == verbs.StateRTR {
			q.d.raise(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: q})
		}
	}
	if r.flags&rspRefused != 0 {
		return
	}

	switch d := p.PSN.Diff(r.psn); {
	case d > 0:
		// A packet before this one is missing, or only late. A soft peer retransmits the
		// missing one alone, so this one is kept; a foreign peer goes back. After an RNR
		// NAK any peer goes back.
		q.count(cntOutOfSequence, 1)
		if r.gap == gapRNR {
			return
		}
		held := q.req.probe.enabled && r.reorder.insert(p, r.psn, q.req.window.max)
		if r.gap == gapReported {
			return
		}
		r.laterArrivals++
		switch {
		case !held || r.laterArrivals >= gapPackets:
			q.reportGap()
		case r.gap == noGap:
			q.openGap(now)
		}
		return
	case d < 0:
		q.count(cntDuplicates, 1)
		q.handleDuplicate(p, info)
		if len(r.reorder.packets) != 0 {
			q.reportGap() // probably a probe: the NAK may be lost
		}
		return
	}

	// The packet must begin a message, or continue the one that is under way. Its
	// payload must have the length that its position in the message demands.
	begins, ends := info.Place.Begins(), info.Place.Ends()
	if mid := r.flags&rspMidMessage != 0; begins == mid || mid && r.kind != info.Kind {
		q.rejectRequest(wire.NakInvalid)
		return
	}
	var lengthFits bool
	switch info.Place {
	case wire.PlaceOnly:
		lengthFits = p.n <= q.mtu
	case wire.PlaceLast:
		lengthFits = p.n > 0 && p.n <= q.mtu
	default:
		lengthFits = p.n == q.mtu*(1+p.batchMore)
	}

	switch info.Kind {
	case wire.KindSend:
		// The first packet consumes a receive, which all packets of the message fill. A
		// failure of the receive is the program's fault: it gets a completion with the
		// error, and the peer a NAK.
		if begins {
			if !q.consumeRecv() {
				return
			}
			r.received = 0
		}
		switch {
		case !lengthFits:
			q.rejectRequest(wire.NakInvalid)
			return
		case int(r.received)+p.n > min(sgLen(r.recv.sg[:r.recv.nsg]), int(q.d.attr.MaxMessage)):
			q.failRecv(verbs.WCLocLenErr, wire.NakInvalid)
			return
		case !q.placeSingle(p, info) && !q.scatter(q.recvPD, r.recv.sg[:r.recv.nsg], int(r.received), p, ends):
			q.failRecv(verbs.WCLocProtErr, wire.NakRemoteOp)
			return
		}
		r.received += uint32(p.n)
		if info.Headers&wire.HasIETH != 0 && !q.invalidate(p.ImmDt) {
			q.failRecv(verbs.WCLocProtErr, wire.NakRemoteAccess)
			return
		}
	case wire.KindWrite:
		// The first packet names the range, and the others fill it in order. The payloads
		// must fill it exactly. A receive is consumed by the last packet, for immediate data.
		if q.access&verbs.RemoteWrite == 0 {
			q.rejectRequest(wire.NakRemoteAccess)
			return
		}
		if info.TakesRecv && !q.consumeRecv() {
			return
		}
		if begins {
			r.addr, r.key, r.remaining, r.received = p.VA, p.RKey, p.DMALen, 0
			if p.DMALen > q.d.attr.MaxMessage {
				q.rejectRequest(wire.NakInvalid)
				return
			}
			// The whole range is checked once. Each packet is checked again, because the
			// region may be deregistered between two packets.
			if p.DMALen > 0 && !q.remoteAllows(p, verbs.RemoteWrite) {
				q.rejectRequest(wire.NakRemoteAccess)
				return
			}
		}
		if !lengthFits || uint32(p.n) > r.remaining || ends != (uint32(p.n) == r.remaining) {
			q.rejectRequest(wire.NakInvalid)
			return
		}
		if p.n > 0 {
			to, ok := q.d.remote(q.pd, r.key, r.addr, p.n, verbs.RemoteWrite)
			if !ok {
				to, ok = q.throughWindow(r.key, r.addr, p.n, verbs.RemoteWrite)
			}
			if !ok {
				q.rejectRequest(wire.NakRemoteAccess)
				return
			}
			q.placePayload(to, p, 0, p.n, ends)
			r.addr += uint64(p.n)
			r.remaining -= uint32(p.n)
			r.received += uint32(p.n)
		}
	default:
		if !q.executeReadOrAtomic(p) {
			return
		}
	}

	// The packet is executed. If it fills a gap, an ACK replaces the NAK that is not sent
	// yet. The response of a READ or atomic acknowledges it; the rest is for SENDs and
	// WRITEs. At the completion all bytes are in place.
	r.kind = info.Kind
	if r.gap != noGap {
		if r.gap == gapReported && r.nak == wire.NakSequence {
			r.nak = 0
		}
		r.gap, r.laterArrivals = noGap, 0
	}
	if info.Kind == wire.KindReadRequest || info.Kind == wire.KindAtomic {
		return
	}
	if ends {
		r.flags &^= rspMidMessage
		r.msn++
	} else {
		r.flags |= rspMidMessage
	}
	if info.TakesRecv {
		r.flags &^= rspRecvHeld
		c := verbs.WC{ID: r.recv.id, Op: verbs.WCRecv, Len: r.received, QPN: q.num}
		if info.Kind == wire.KindWrite {
			c.Op = verbs.WCRecvImm
		}
		if info.Headers&wire.HasImm != 0 {
			c.Flags, c.Imm = verbs.WCWithImm, p.ImmDt
		} else if info.Headers&wire.HasIETH != 0 {
			c.Flags, c.Imm = verbs.WCWithInv, p.ImmDt
		}
		q.postCQE(q.recvCQ, &c, p.Solicited)
		q.count(cntCQEs, 1)
	}
	if q.typ == verbs.UC {
		r.psn = r.psn.Add(1)
		return
	}
	r.psn = r.psn.Add(p.batchMore)
	q.updateAckState(p.AckReq, info.Place, now)
}

// executeReadOrAtomic checks a READ or atomic request and schedules its response. An
// atomic is executed at once; a READ reads the memory when its response is sent. It
// returns false if the request was refused.
//
// The request is saved (handleDuplicate). The peer may have maxSaved requests
// outstanding. If all places are taken, those at the front whose responses were sent
// completely are only retransmissions: the peer has those responses, otherwise it would
// not send another request.
func (q *qp) executeReadOrAtomic(p *packet) bool {
	r := &q.rsp
	read := p.Opcode == wire.ReadRequest
	npk := uint32(1)
	var word []byte // of an atomic
	nak := wire.NakRemoteAccess
	ok := false
	switch {
	case read && q.access&verbs.RemoteRead == 0 || !read && q.access&verbs.RemoteAtomic == 0:
	case read && p.DMALen > q.d.attr.MaxMessage || !read && p.VA&7 != 0:
		nak = wire.NakInvalid
	case read:
		npk = max(1, (p.DMALen+uint32(q.mtu)-1)/uint32(q.mtu))
		ok = p.DMALen == 0 || q.remoteAllows(p, verbs.RemoteRead)
	default:
		word, ok = q.remote(p.RKey, p.VA, 8, verbs.RemoteAtomic)
	}
	if !ok {
		q.rejectRequest(nak)
		return false
	}
	for bits.OnesCount16(r.pendingResponses) >= int(max(r.maxSaved, 1)) && r.saved[r.oldestPending()].completed {
		r.pendingResponses &^= 1 << r.oldestPending()
	}
	if bits.OnesCount16(r.pendingResponses) >= int(r.maxSaved) {
		q.rejectRequest(wire.NakInvalid)
		return false
	}
	at := r.numSaved % maxDestRdAtomic
	a := &r.saved[at]
	*a = savedRequest{psn: p.PSN, npk: npk, read: read, key: p.RKey, addr: p.VA, n: p.DMALen, msn: r.msn + 1}
	switch p.Opcode {
	case wire.FetchAdd:
		a.atomicOld, ok = fetchAdd(word, p.SwapDt)
	case wire.CompareSwap:
		a.atomicOld, ok = compareSwap(word, p.CmpDt, p.SwapDt)
	default: // a READ
	}
	if !ok {
		q.rejectRequest(wire.NakInvalid) // the memory behind the address is not aligned
		return false
	}
	r.pendingResponses |= 1 << at
	r.numSaved++
	r.msn++
	r.psn = r.psn.Add(int(npk))
	return true
}

// remoteAllows reports whether the peer may access the range that p's RETH names.
func (q *qp) remoteAllows(p *packet, access verbs.Access) bool {
	_, ok := q.remote(p.RKey, p.VA, int(p.DMALen), access)
	return ok
}

// updateAckState advances psn past an executed SEND or WRITE packet and schedules its
// ACK. Only message ends and packets with AckReq count: the last packet of a segment
// batch has AckReq.
//
// An ACK acknowledges all packets before it, so one pending ACK is enough and only its
// PSN moves on. The timer is set by the first message of a run and by the second, which
// shortens it. Later ones find it running.
func (q *qp) updateAckState(ackReq bool, place wire.Place, now ucs.Time) {
	r := &q.rsp
	r.ack, r.psn = r.psn, r.psn.Add(1)
	if !ackReq && !place.Ends() {
		return
	}
	r.unacked++
	r.unackedRun++
	q.req.impliedAcks++
	r.longAckReq = place != wire.PlaceOnly && ackReq
	if ackReq || r.unackedRun >= ackPackets || r.unacked >= ackPacketsImplied {
		r.ackState = ackDue
		return
	}
	if r.ackState == ackNone {
		r.ackState = ackDelayed
	}
	switch {
	case r.unackedRun > 2 || r.unackedRun == 1 && r.unacked > 1: // the timer runs already
	case r.unackedRun == 2:
		r.ackDeadline = now + ackDelay
		q.e.setTimer(q, r.ackDeadline)
	default:
		r.ackDeadline = now + ackDelayImplied
		q.e.setTimer(q, r.ackDeadline)
	}
}

// rejectRequest schedules a NAK and raises the event for it. The queue pair enters the error
// state once the NAK is sent (transmit): responses and ACKs before it are sent first.
//
// On an unreliable connection it drops the message.
func (q *qp) rejectRequest(s wire.Syndrome) {
	r := &q.rsp
	if q.typ == verbs.UC {
		r.flags &^= rspMidMessage
		q.count(cntDroppedMessage, 1)
		return
	}
	r.nak, r.ackState = s, ackDue
	r.flags |= rspRefused
	q.count(cntNaks, 1)
	ev := verbs.EventQPReqErr
	if s == wire.NakRemoteAccess {
		ev = verbs.EventQPAccessErr
	}
	q.d.raise(verbs.AsyncEvent{Type: ev, QP: q})
}

// consumeRecv consumes a receive for the current message. If there is none it schedules
// an RNR NAK, or drops the message of an unreliable connection, and returns false. Later requests are dropped then: the requester
// retransmits them too.
func (q *qp) consumeRecv() bool {
	r := &q.rsp
	if r.flags&rspRecvHeld != 0 {
		return true
	}
	if q.popRecv(&r.recv) {
		r.flags |= rspRecvHeld
		return true
	}
	if q.typ == verbs.UC {
		q.rejectRequest(0)
		return false
	}
	r.nak, r.ackState, r.gap = wire.RNR(r.minTimer), ackDue, gapRNR
	q.count(cntRNRNaks, 1)
	return false
}

// popRecv consumes the next receive of the queue pair's own queue or of the SRQ.
func (q *qp) popRecv(w *recvWQE) bool {
	if q.srq != nil {
		return q.srq.pop(w)
	}
	return q.rq.pop(w)
}

// completeRecv completes the current receive with status s.
func (q *qp) completeRecv(s verbs.WCStatus) {
	c := verbs.WC{ID: q.rsp.recv.id, Status: s, Op: verbs.WCRecv, QPN: q.num}
	q.postCQE(q.recvCQ, &c, false)
	q.count(cntCQEs, 1)
}

// failRecv completes the receive with a local error and refuses the request.
func (q *qp) failRecv(s verbs.WCStatus, nak wire.Syndrome) {
	q.rsp.flags &^= rspRecvHeld
	q.completeRecv(s)
	if q.typ == verbs.UC {
		q.enterErr()
		return
	}
	q.rejectRequest(nak)
}
