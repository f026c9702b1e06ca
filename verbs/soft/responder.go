package soft

import (
	"math/bits"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// responder is the side of a queue pair that executes requests.
type responder struct {
	psn      verbs.PSN // the expected PSN
	msn      uint32
	ended    wire.Place // position of the last packet in its message: it decides what may follow
	kind     wire.Kind  // of the message being received
	held     bool       // recv is consumed and not completed
	recv     recvWQE
	off      uint32 // bytes of recv that are filled, or bytes of the WRITE received
	addr     uint64 // of the WRITE's next byte
	key      uint32
	left     uint32 // bytes of the WRITE not yet received
	minTimer uint8

	// Recent READs and atomics, so that lost responses can be sent again.
	kept  [maxDestRd]answer // by running number
	max   uint32            // how many are kept; Modify may change it
	keptN uint32            // running number of the next entry
	asked uint16            // bit i: the response kept[i] is to be sent

	// ACK state: the pending acknowledgement, which may be delayed.
	ack   verbs.PSN     // PSN of the ACK: never that of a READ or atomic
	due   bool          // an ACK or NAK is pending
	soon  bool          // it is not delayed any more
	long  bool          // the last packet belongs to a long message and had AckReq
	nak   wire.Syndrome // the pending NAK or RNR NAK; 0: an ACK
	gap   gapState
	stood uint32 // message ends and packets with AckReq since the last ACK
	run   uint32 // the same since the last request or ACK was sent to the peer
	dueAt ucs.Time
	fatal bool // a request was refused: the QP enters the error state once the NAK is sent

	// Requests whose predecessors are missing: reorder.go.
	reorder reorderBuffer
	passed  int      // requests received since the gap opened
	gapEnds ucs.Time // when an open gap is reported
}

// maxDestRd is how many READs and atomics of the peer are kept at most.
const maxDestRd = 16

// Delayed ACKs. Without AckReq a responder acknowledges after ackPackets packets in a
// row, or after ackDelay. If requests of its own are sent between them, these imply
// ACKs for the peer's program. The limits are then ackAnswered packets and ackLate. A
// piggybacked ACK costs no packet: half as many suffice for it.
const (
	ackPackets  = 4
	ackDelay    = ucs.Time(20_000)
	ackAnswered = 16
	ackLate     = 10 * ackDelay
)

// requested processes a request of the peer: it executes the expected one, and passes
// duplicates and requests out of order on.
func (q *qp) requested(p *packet, info *wire.Info, now ucs.Time) {
	r := &q.rsp
	if !q.known {
		q.known = true
		if q.stateNow() == verbs.StateRTR {
			q.d.raise(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: q})
		}
	}
	if r.fatal {
		return
	}
	switch d := p.psn.Diff(r.psn); {
	case d > 0:
		q.count(cntOutOfSequence, 1)
		q.outOfOrder(p, now)
		return
	case d < 0:
		q.count(cntDuplicates, 1)
		q.again(p, info)
		if len(r.reorder.held) != 0 {
			q.tellGap() // probably a probe: the NAK may be lost
		}
		return
	}
	if !q.fits(info) {
		q.refuse(wire.NakInvalid)
		return
	}
	ok := false
	switch info.Kind {
	case wire.KindSend:
		ok = q.takeSend(p, info)
	case wire.KindWrite:
		ok = q.takeWrite(p, info)
	case wire.KindReadRequest:
		ok = q.takeRead(p)
	default:
		ok = q.takeAtomic(p)
	}
	if !ok {
		return
	}
	r.kind, r.ended = info.Kind, info.Place
	if r.gap != noGap {
		r.gapFilled()
	}
	if info.Kind == wire.KindReadRequest || info.Kind == wire.KindAtomic {
		return // the response acknowledges
	}
	q.stands(p.ackReq, info.Place, now)
}

// stands updates the ACK state after a SEND or WRITE packet was executed. asked is set
// if the packet had AckReq.
func (q *qp) stands(asked bool, place wire.Place, now ucs.Time) {
	r := &q.rsp
	r.ack, r.psn = r.psn, r.psn.Add(1)
	if !asked && !place.Ends() {
		return // the last packet of its segment batch has AckReq
	}
	r.stood++
	r.run++
	q.req.met++
	r.due, r.long = true, place != wire.PlaceOnly && asked
	switch {
	case asked || r.run >= ackPackets || r.stood >= ackAnswered:
		r.soon = true
	case r.run > 2 || r.run == 1 && r.stood > 1: // the timer runs already
	case r.run == 2:
		r.dueAt = now + ackDelay
		q.d.due(q, r.dueAt)
	default:
		r.dueAt = now + ackLate
		q.d.due(q, r.dueAt)
	}
}

// fits reports whether a packet may follow the last one in message order.
func (q *qp) fits(info *wire.Info) bool {
	r := &q.rsp
	open := !r.ended.Ends()
	if info.Place.Begins() {
		return !open
	}
	return open && r.kind == info.Kind
}

// refuse schedules a NAK and raises the event for it. The queue pair enters the error
// state once the NAK is sent.
func (q *qp) refuse(s wire.Syndrome) {
	r := &q.rsp
	r.nak, r.due, r.soon, r.fatal = s, true, true, true
	q.count(cntNaks, 1)
	ev := verbs.EventQPReqErr
	if s == wire.NakRemoteAccess {
		ev = verbs.EventQPAccessErr
	}
	q.d.raise(verbs.AsyncEvent{Type: ev, QP: q})
}

// takeRecv consumes a receive for the current message. If there is none it schedules an
// RNR NAK and returns false.
func (q *qp) takeRecv() bool {
	r := &q.rsp
	if r.held {
		return true
	}
	r.held = q.takeRecvWQE(&r.recv)
	if !r.held {
		r.nak, r.due, r.soon = wire.RNR(r.minTimer), true, true
		r.gap = gapRNR // later requests are dropped: the requester retransmits them
		q.count(cntRNRNaks, 1)
	}
	return r.held
}

// takeRecvWQE consumes the next receive of the queue pair's own queue or of the SRQ.
func (q *qp) takeRecvWQE(w *recvWQE) bool {
	if q.srq != nil {
		return q.srq.take(w)
	}
	return q.rq.take(w)
}

// takeSend executes a SEND packet. It returns false if the packet was refused, or if no
// receive is posted.
func (q *qp) takeSend(p *packet, info *wire.Info) bool {
	r := &q.rsp
	if info.Place.Begins() {
		if !q.takeRecv() {
			return false
		}
		r.off = 0
	}
	if !q.lengthFits(p, info.Place) {
		q.refuse(wire.NakInvalid)
		return false
	}
	if int(r.off)+p.n > min(sgLen(r.recv.sg[:r.recv.nsg]), int(q.d.attr.MaxMessage)) {
		q.failRecv(verbs.WCLocLenErr, wire.NakInvalid)
		return false
	}
	if !q.placeWhole(p, info) && !q.scatter(q.recvPD, r.recv.sg[:r.recv.nsg], int(r.off), p, info.Place.Ends()) {
		q.failRecv(verbs.WCLocProtErr, wire.NakRemoteOp)
		return false
	}
	r.off += uint32(p.n)
	if !info.Place.Ends() {
		return true
	}
	if info.Headers&wire.HasIETH != 0 && !q.d.invalidate(q.pd, p.imm) {
		q.failRecv(verbs.WCLocProtErr, wire.NakRemoteAccess)
		return false
	}
	r.msn++
	r.held = false
	flags := verbs.WCFlags(0)
	if info.Headers&wire.HasImm != 0 {
		flags = verbs.WCWithImm
	} else if info.Headers&wire.HasIETH != 0 {
		flags = verbs.WCWithInv
	}
	c := verbs.WC{ID: r.recv.id, Op: verbs.WCRecv, Flags: flags, Len: r.off, Imm: p.imm, QPN: q.num}
	if flags == 0 {
		c.Imm = 0
	}
	q.tell(q.recvCQ, &c, p.se)
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

// takeWrite executes a WRITE packet. It returns false if the packet was refused, or if
// it needs a receive and none is posted.
func (q *qp) takeWrite(p *packet, info *wire.Info) bool {
	r := &q.rsp
	if q.access&verbs.RemoteWrite == 0 {
		q.refuse(wire.NakRemoteAccess)
		return false
	}
	if info.TakesRecv && !q.takeRecv() {
		return false
	}
	if info.Place.Begins() {
		r.addr, r.key, r.left, r.off = p.addr, p.rkey, p.dlen, 0
		if p.dlen > q.d.attr.MaxMessage {
			q.refuse(wire.NakInvalid)
			return false
		}
		if p.dlen > 0 {
			if _, ok := q.d.remote(q.pd, p.rkey, p.addr, int(p.dlen), verbs.RemoteWrite); !ok {
				q.refuse(wire.NakRemoteAccess)
				return false
			}
		}
	}
	if !q.lengthFits(p, info.Place) || uint32(p.n) > r.left || info.Place.Ends() != (uint32(p.n) == r.left) {
		q.refuse(wire.NakInvalid)
		return false
	}
	if p.n > 0 {
		b, ok := q.d.remote(q.pd, r.key, r.addr, p.n, verbs.RemoteWrite)
		if !ok {
			q.refuse(wire.NakRemoteAccess)
			return false
		}
		q.place(b, p, 0, p.n, info.Place.Ends())
		r.addr += uint64(p.n)
		r.left -= uint32(p.n)
		r.off += uint32(p.n)
	}
	if !info.Place.Ends() {
		return true
	}
	r.msn++
	if info.TakesRecv {
		r.held = false
		c := verbs.WC{ID: r.recv.id, Op: verbs.WCRecvImm, Flags: verbs.WCWithImm, Len: r.off, Imm: p.imm, QPN: q.num}
		q.tell(q.recvCQ, &c, p.se)
		q.count(cntCQEs, 1)
	}
	return true
}

// keep stores a READ or atomic request, so that its response can be sent again. It
// returns nil if the peer has too many outstanding; the request is refused then.
func (q *qp) keep(p *packet, npk uint32) *answer {
	r := &q.rsp
	for bits.OnesCount16(r.asked) >= int(max(r.max, 1)) && r.kept[r.oldest()].given {
		r.asked &^= 1 << r.oldest() // the peer has that response: otherwise it would not send another request
	}
	if bits.OnesCount16(r.asked) >= int(r.max) {
		q.refuse(wire.NakInvalid)
		return nil
	}
	r.msn++
	a := &r.kept[r.keptN%maxDestRd]
	*a = answer{psn: p.psn, npk: npk, key: p.rkey, addr: p.addr, n: p.dlen, msn: r.msn}
	return a
}

// takeRead checks a READ request and schedules its response.
func (q *qp) takeRead(p *packet) bool {
	r := &q.rsp
	if q.access&verbs.RemoteRead == 0 {
		q.refuse(wire.NakRemoteAccess)
		return false
	}
	if p.dlen > q.d.attr.MaxMessage {
		q.refuse(wire.NakInvalid)
		return false
	}
	if p.dlen > 0 {
		if _, ok := q.d.remote(q.pd, p.rkey, p.addr, int(p.dlen), verbs.RemoteRead); !ok {
			q.refuse(wire.NakRemoteAccess)
			return false
		}
	}
	npk := max(1, (p.dlen+uint32(q.mtu)-1)/uint32(q.mtu))
	a := q.keep(p, npk)
	if a == nil {
		return false
	}
	a.read = true
	r.asked |= 1 << (r.keptN % maxDestRd)
	r.keptN++
	r.psn = r.psn.Add(int(npk))
	return true
}

// takeAtomic executes an atomic request and schedules its response.
func (q *qp) takeAtomic(p *packet) bool {
	r := &q.rsp
	if q.access&verbs.RemoteAtomic == 0 {
		q.refuse(wire.NakRemoteAccess)
		return false
	}
	if p.addr&7 != 0 {
		q.refuse(wire.NakInvalid)
		return false
	}
	b, ok := q.d.remote(q.pd, p.rkey, p.addr, 8, verbs.RemoteAtomic)
	if !ok {
		q.refuse(wire.NakRemoteAccess)
		return false
	}
	a := q.keep(p, 1)
	if a == nil {
		return false
	}
	if p.op == wire.FetchAdd {
		a.old, ok = fetchAdd(b, p.swapAdd)
	} else {
		a.old, ok = compareSwap(b, p.compare, p.swapAdd)
	}
	if !ok {
		q.refuse(wire.NakInvalid) // the memory behind the address is not aligned
		return false
	}
	r.asked |= 1 << (r.keptN % maxDestRd)
	r.keptN++
	r.psn = r.psn.Add(1)
	return true
}

// endRecv completes the current receive with status s.
func (q *qp) endRecv(s verbs.WCStatus) {
	c := verbs.WC{ID: q.rsp.recv.id, Status: s, Op: verbs.WCRecv, QPN: q.num}
	q.tell(q.recvCQ, &c, false)
	q.count(cntCQEs, 1)
}

// failRecv completes the receive with a local error and refuses the request.
func (q *qp) failRecv(s verbs.WCStatus, nak wire.Syndrome) {
	q.rsp.held = false
	q.endRecv(s)
	q.refuse(nak)
}
