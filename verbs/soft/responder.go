package soft

import (
	"math/bits"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// responder is the side of a queue pair that carries requests out.
type responder struct {
	psn      verbs.PSN // of the next request
	msn      uint32
	ended    wire.Place // of the last packet: what may follow it
	kind     wire.Kind  // of the message that is coming
	held     bool       // recv is taken and not ended
	recv     recvWQE
	off      uint32 // bytes of recv that are filled, or of the write that came
	addr     uint64 // of the write's next byte
	key      uint32
	left     uint32 // bytes of the write
	minTimer uint8

	// Reads and atomics are remembered, so that lost answers can be given again.
	kept  [maxDestRd]answer // by running number
	max   uint32            // how many; it may change under them
	keptN uint32            // running number of the next
	asked uint16            // bit i: kept[i] is to be answered

	ack   verbs.PSN     // what a plain acknowledgement carries: never the PSN of a READ or an atomic
	due   bool          // an acknowledgement
	soon  bool          // without waiting for more to acknowledge
	long  bool          // the last packet is of a long message, and asked
	nak   wire.Syndrome // instead; 0: none
	gap   gapState
	stood uint32 // ends of messages and packets that asked, since the last acknowledgement
	run   uint32 // the same since the last request or acknowledgement went to the peer
	dueAt ucs.Time
	fatal bool // the queue pair ends when nak is told

	// Requests whose predecessors are missing.
	reorder reorderBuffer
	passed  int      // requests that came since the gap opened
	gapEnds ucs.Time // when it is reported, of gapOpen
}

// maxDestRd is the most reads and atomics of a peer that are remembered.
const maxDestRd = 16

// Without being asked a responder acknowledges after so many packets in a row, or
// so late. Where each is answered by a request, which tells the peer's program
// what it wants to know, it takes more, and longer. With a packet that goes anyway
// it acknowledges after half as many.
const (
	ackPackets  = 4
	ackDelay    = ucs.Time(20_000)
	ackAnswered = 16
	ackLate     = 10 * ackDelay
)

// requested acts on a request of the peer.
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
			q.tellGap() // a probe: the NAK may be lost
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
		return // the answer acknowledges
	}
	q.stands(p.ackReq, info.Place, now)
}

// stands notes a packet that was carried out, to be acknowledged; asked: soon.
func (q *qp) stands(asked bool, place wire.Place, now ucs.Time) {
	r := &q.rsp
	r.ack, r.psn = r.psn, r.psn.Add(1)
	if !asked && !place.Ends() {
		return // the end of its train asks
	}
	r.stood++
	r.run++
	q.req.met++
	r.due, r.long = true, place != wire.PlaceOnly && asked
	switch {
	case asked || r.run >= ackPackets || r.stood >= ackAnswered:
		r.soon = true
	case r.run > 2 || r.run == 1 && r.stood > 1: // runs already
	case r.run == 2:
		r.dueAt = now + ackDelay
		q.d.due(q, r.dueAt)
	default:
		r.dueAt = now + ackLate
		q.d.due(q, r.dueAt)
	}
}

// fits reports whether a packet may follow the last one.
func (q *qp) fits(info *wire.Info) bool {
	r := &q.rsp
	open := !r.ended.Ends()
	if info.Place.Begins() {
		return !open
	}
	return open && r.kind == info.Kind
}

// refuse answers that the request cannot be carried out; the queue pair ends.
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

// takeRecv takes a receive; without one the peer is told to wait.
func (q *qp) takeRecv() bool {
	r := &q.rsp
	if r.held {
		return true
	}
	r.held = q.takeRecvWQE(&r.recv)
	if !r.held {
		r.nak, r.due, r.soon = wire.RNR(r.minTimer), true, true
		r.gap = gapRNR // what comes behind is dropped
		q.count(cntRNRNaks, 1)
	}
	return r.held
}

// takeRecvWQE takes the next receive of the queue pair's own queue or the shared one.
func (q *qp) takeRecvWQE(w *recvWQE) bool {
	if q.srq != nil {
		return q.srq.take(w)
	}
	return q.rq.take(w)
}

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

// lengthFits holds a packet's payload against its place in the message.
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

// keep remembers a read or atomic operation; nil: the peer has too many.
func (q *qp) keep(p *packet, npk uint32) *answer {
	r := &q.rsp
	for bits.OnesCount16(r.asked) >= int(max(r.max, 1)) && r.kept[r.oldest()].given {
		r.asked &^= 1 << r.oldest() // the peer has that answer, or it would not ask for more
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

// endRecv ends the receive that is held.
func (q *qp) endRecv(s verbs.WCStatus) {
	c := verbs.WC{ID: q.rsp.recv.id, Status: s, Op: verbs.WCRecv, QPN: q.num}
	q.tell(q.recvCQ, &c, false)
	q.count(cntCQEs, 1)
}

// failRecv ends the receive and the queue pair with an error of this side.
func (q *qp) failRecv(s verbs.WCStatus, nak wire.Syndrome) {
	q.rsp.held = false
	q.endRecv(s)
	q.refuse(nak)
}
