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
// receive buffer and the completion, in one function at each end: sendFast and
// handleFastCell. Both have the effect of requester and responder and leave the same
// state. Each first checks all conditions and returns false, without side effects, if
// anything is unusual; the engine then takes the general path. TestShortWay runs one
// script over both paths.

// inprocFastMax returns the longest message of the in-process fast path, or -1 if the queue
// pair has none.
func (q *qp) inprocFastMax() int {
	if q.d.kind != overInproc || q.typ != verbs.RC {
		return -1
	}
	return min(smallLen, q.caps.MaxInline)
}

// sendFast posts and sends r. It returns false, without side effects, if r cannot take
// the fast path. The caller owns the queue pair and holds the posters' lock; sendFast
// keeps both.
//
//hot:bench BenchmarkPingPong
func (q *qp) sendFast(r *verbs.SendWR) bool {
	if r.Op != verbs.OpSend || r.Flags&(verbs.SendInline|verbs.SendFence) != verbs.SendInline || r.NumSG != 0 ||
		int(r.InlineLen) > q.fastMax || !q.canSendNow() {
		return false
	}
	c, seq := q.route.peer.inbox.claim()
	if c == nil {
		return false
	}
	s, m := &q.sq, &q.req
	t := s.end()
	w := s.at(t)
	w.id, w.op, w.flags = r.ID, r.Op, r.Flags
	w.n, w.numPSNs, w.psn = uint32(r.InlineLen), 1, m.psn
	c.dest, c.psn, c.op, c.n, c.from, c.pkey = q.dest, m.psn, wire.SendOnly, uint16(r.InlineLen), q.d.index, q.pkey
	c.flags, c.nsg = 0, 0
	c.small = *(*[smallLen]byte)(r.Inline[:])
	if r.Flags&verbs.SendSolicited != 0 {
		c.flags = cellSE
	}
	m.psn = m.psn.Add(1)
	m.tx = t + 1
	if q.wantsAckReq(w, true) {
		c.flags |= cellAckReq
	}
	if q.rsp.canPiggyback() {
		c.piggyback(q.takeAck())
	}
	storeRelease32(&c.seq, seq) // publish first: what follows is not on the message's critical path
	q.updateSndMax()
	s.nextPSN = m.psn
	w.done, w.started, w.status, w.received = false, false, verbs.WCSuccess, 0
	*(*[smallLen]byte)(w.inline[:]) = *(*[smallLen]byte)(r.Inline[:])
	s.counts.post(1, !s.single)
	s.tail.publish(uint64(t + 1))
	q.count(cntTxPackets, 1)
	q.count(cntTxBytes, uint64(r.InlineLen))
	if !q.isTimed {
		q.d.setTimer(q, ucs.Time(q.d.now.Load())+maxTimerDelay)
	}
	q.route.peer.wake()
	return true
}

// canSendNow reports whether the next posted message can be sent at once and nothing is to
// be sent before it.
func (q *qp) canSendNow() bool {
	s, m, r := &q.sq, &q.req, &q.rsp
	t := s.end()
	return m.tx == t && t-m.head < uint32(len(s.ring)) && m.psn.Diff(m.una) < shortPackets*m.window.cur &&
		!m.failed && m.rnrWait == 0 && !m.probe.pending && r.pendingResponses == 0 && r.nak == 0 && !r.fatal &&
		!q.cqUnusable && q.loadState() == verbs.StateRTS
}

// handleFastCell processes a cell that sendFast of the peer filled. It returns false,
// without side effects, if anything is unusual. The caller owns the queue pair.
//
//hot:bench BenchmarkPingPong
func (q *qp) handleFastCell(c *cell, now ucs.Time) bool {
	r := &q.rsp
	n := uint32(c.n)
	if c.op != wire.SendOnly || int(n) > q.fastMax || c.nsg != 0 || c.psn != r.psn || c.pkey != q.pkey ||
		!q.established || r.fatal || r.gap != noGap || r.hasRecv || !r.lastPlace.Ends() || q.loadState() != verbs.StateRTS {
		return false
	}
	id, to, ok := q.peekFast(n)
	if !ok {
		return false
	}
	if c.flags&cellAck != 0 && !q.handlePiggybackedAck(verbs.PSN(c.msn)) {
		q.recvQueue().unpeek()
		return false
	}
	q.skipFast()
	q.count(cntRxPackets, 1)
	q.count(cntRxBytes, uint64(n))
	if n != 0 {
		placeLastWord(to, c.small[:n])
	}
	r.kind, r.lastPlace = wire.KindSend, wire.PlaceOnly
	r.received = n
	r.msn++
	q.updateAckState(c.flags&cellAckReq != 0, wire.PlaceOnly, now)
	q.postCQE(q.recvCQ, &verbs.WC{ID: id, Op: verbs.WCRecv, Len: n, QPN: q.num}, c.flags&cellSE != 0)
	q.count(cntCQEs, 1)
	return true
}

// recvQueue returns the queue that receives are taken from.
func (q *qp) recvQueue() *recvRing {
	if q.srq != nil {
		return &q.srq.recvRing
	}
	return &q.rq
}

// peekFast returns the next receive and the memory for n bytes of it, if it has one
// SGE. It returns false for any other receive, or if there is none. After true the
// caller calls skipFast, or stay on the queue.
func (q *qp) peekFast(n uint32) (id uint64, to []byte, ok bool) {
	r := q.recvQueue()
	e := r.peek()
	if e == nil {
		return 0, nil, false
	}
	id = e.id
	if e.nsg == 1 && n <= e.sg[0].Len {
		to, ok = q.d.local(q.recvPD, verbs.SGE{Addr: e.sg[0].Addr, Len: n, LKey: e.sg[0].LKey}, verbs.LocalWrite)
	}
	if !ok {
		r.unpeek()
	}
	return id, to, ok
}

// skipFast removes the receive that peekFast returned.
func (q *qp) skipFast() {
	if q.srq != nil {
		q.srq.skip()
		return
	}
	q.rq.skip()
}

// handlePiggybackedAck processes an ACK piggybacked in a cell. It returns false, without side effects,
// if anything is unusual.
func (q *qp) handlePiggybackedAck(psn verbs.PSN) bool {
	m := &q.req
	if psn.Before(m.una) || !psn.Before(m.psn) || m.rdAtomic != 0 || m.failed {
		return false
	}
	q.count(cntRxPackets, 1)
	q.retireData(psn.Add(1))
	if m.head == m.tx || plainOps>>q.sq.at(m.head).op&1 != 0 {
		q.advanceUna(psn.Add(1))
	} else {
		q.retire(psn.Add(1))
	}
	return true
}
