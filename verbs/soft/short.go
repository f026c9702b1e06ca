package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The in-process fast path is for a SEND whose data is inline and fits a cell. The
// queue pair must have nothing else to do.
//
// The message moves from PostSend into the peer's inbox, and from there into the
// receive buffer and the completion, in one function at each end: sendShort and
// arriveShort. Both have the effect of requester and responder and leave the same
// state. Each first checks all conditions and returns false, without side effects, if
// anything is unusual; the engine then takes the general path. TestShortWay runs one
// script over both paths.

// shortest returns the longest message of the in-process fast path, or -1 if the queue
// pair has none.
func (q *qp) shortest() int {
	if q.d.kind != overInproc || q.typ != verbs.RC {
		return -1
	}
	return min(smallLen, q.caps.MaxInline)
}

// sendShort posts and sends r. It returns false, without side effects, if r cannot take
// the fast path. The caller owns the queue pair and holds the posters' lock; sendShort
// keeps both.
//
// hot: BenchmarkPingPong.
func (q *qp) sendShort(r *verbs.SendWR) bool {
	if r.Op != verbs.OpSend || r.Flags&(verbs.SendInline|verbs.SendFence) != verbs.SendInline || r.NumSG != 0 ||
		int(r.InlineLen) > q.short || !q.atRest() {
		return false
	}
	c, seq := q.to.peer.in.claim()
	if c == nil {
		return false
	}
	s, m := &q.sq, &q.req
	t := s.end()
	w := s.at(t)
	w.id, w.op, w.flags = r.ID, r.Op, r.Flags
	w.n, w.npk, w.psn = uint32(r.InlineLen), 1, m.psn
	c.dest, c.psn, c.op, c.n, c.from, c.pkey = q.dest, m.psn, wire.SendOnly, uint16(r.InlineLen), q.d.index, q.pkey
	c.flags, c.nsg = 0, 0
	c.small = *(*[smallLen]byte)(r.Inline[:])
	if r.Flags&verbs.SendSolicited != 0 {
		c.flags = cellSE
	}
	m.psn = m.psn.Add(1)
	m.tx = t + 1
	if q.asks(w, true) {
		c.flags |= cellAckReq
	}
	if q.rsp.mayRide() {
		c.ride(q.acknowledged())
	}
	storeRelease32(&c.seq, seq) // publish first: what follows is not on the message's critical path
	q.reached()
	s.next = m.psn
	w.done, w.began, w.status, w.got = false, false, verbs.WCSuccess, 0
	*(*[smallLen]byte)(w.inline[:]) = *(*[smallLen]byte)(r.Inline[:])
	s.counted.post(1, !s.single)
	s.tail.end(uint64(t + 1))
	q.count(cntTxPackets, 1)
	q.count(cntTxBytes, uint64(r.InlineLen))
	if !q.isTimed {
		q.d.due(q, ucs.Time(q.d.now.Load())+firstLook)
	}
	q.to.peer.wake()
	return true
}

// atRest reports whether the next posted message can be sent at once and nothing is to
// be sent before it.
func (q *qp) atRest() bool {
	s, m, r := &q.sq, &q.req, &q.rsp
	t := s.end()
	return m.tx == t && t-m.head < uint32(len(s.ring)) && m.psn.Diff(m.una) < shortPackets*m.window.now &&
		!m.stuck && m.pause == 0 && !m.probe.alone && r.asked == 0 && r.nak == 0 && !r.fatal &&
		!q.lost && q.stateNow() == verbs.StateRTS
}

// arriveShort processes a cell that sendShort of the peer filled. It returns false,
// without side effects, if anything is unusual. The caller owns the queue pair.
//
// hot: BenchmarkPingPong.
func (q *qp) arriveShort(c *cell, now ucs.Time) bool {
	r := &q.rsp
	n := uint32(c.n)
	if c.op != wire.SendOnly || int(n) > q.short || c.nsg != 0 || c.psn != r.psn || c.pkey != q.pkey ||
		!q.known || r.fatal || r.gap != noGap || r.held || !r.ended.Ends() || q.stateNow() != verbs.StateRTS {
		return false
	}
	id, to, ok := q.peekShort(n)
	if !ok {
		return false
	}
	if c.flags&cellAck != 0 && !q.acked(verbs.PSN(c.msn)) {
		q.recvs().stay()
		return false
	}
	q.skipShort()
	q.count(cntRxPackets, 1)
	q.count(cntRxBytes, uint64(n))
	if n != 0 {
		placeLast(to, c.small[:n])
	}
	r.kind, r.ended = wire.KindSend, wire.PlaceOnly
	r.off = n
	r.msn++
	q.stands(c.flags&cellAckReq != 0, wire.PlaceOnly, now)
	q.tell(q.recvCQ, &verbs.WC{ID: id, Op: verbs.WCRecv, Len: n, QPN: q.num}, c.flags&cellSE != 0)
	q.count(cntCQEs, 1)
	return true
}

// recvs returns the queue that receives are taken from.
func (q *qp) recvs() *recvRing {
	if q.srq != nil {
		return &q.srq.recvRing
	}
	return &q.rq
}

// peekShort returns the next receive and the memory for n bytes of it, if it has one
// SGE. It returns false for any other receive, or if there is none. After true the
// caller calls skipShort, or stay on the queue.
func (q *qp) peekShort(n uint32) (id uint64, to []byte, ok bool) {
	r := q.recvs()
	e := r.peek()
	if e == nil {
		return 0, nil, false
	}
	id = e.id
	if e.nsg == 1 && n <= e.sg[0].Len {
		to, ok = q.d.local(q.recvPD, verbs.SGE{Addr: e.sg[0].Addr, Len: n, LKey: e.sg[0].LKey}, verbs.LocalWrite)
	}
	if !ok {
		r.stay()
	}
	return id, to, ok
}

// skipShort removes the receive that peekShort returned.
func (q *qp) skipShort() {
	if q.srq != nil {
		q.srq.skip()
		return
	}
	q.rq.skip()
}

// acked processes an ACK piggybacked in a cell. It returns false, without side effects,
// if anything is unusual.
func (q *qp) acked(psn verbs.PSN) bool {
	m := &q.req
	if psn.Before(m.una) || !psn.Before(m.psn) || m.rd != 0 || m.stuck {
		return false
	}
	q.count(cntRxPackets, 1)
	q.retirePlain(psn.Add(1))
	if m.head == m.tx || plainOps>>q.sq.at(m.head).op&1 != 0 {
		q.advance(psn.Add(1))
	} else {
		q.retire(psn.Add(1))
	}
	return true
}
