package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// The fast paths are for messages of one packet whose data is inline in the work
// request. The queue pair must have nothing else to do.
//
//	             post and send            receive
//	in-process   sendFast: a cell         handleFastCell  ┐
//	UDP          postFast and addFast:    handleFastBatch ┴ receiveFast
//	             a segment batch
//
// A function of a fast path has the effect of requester or responder and leaves the
// same state. It first checks all conditions. If anything is unusual it returns false,
// without side effects, and the caller takes the general path. TestFastReceive compares
// receiveFast with handleRequest, and TestShortWay the whole paths.

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
	cpu.StoreRelease32(&c.seq, seq) // publish first: what follows is not on the message's critical path
	q.updateSndMax()
	s.nextPSN = m.psn
	w.done, w.started, w.status, w.received = false, false, verbs.WCSuccess, 0
	*(*[smallLen]byte)(w.inline[:]) = *(*[smallLen]byte)(r.Inline[:])
	s.counts.post(1)
	if q.uuar != nil {
		q.ringDoorbell(w, 1)
	}
	s.tail.publish(uint64(t + 1))
	q.count(cntTxPackets, 1)
	q.count(cntTxBytes, uint64(r.InlineLen))
	if !q.isTimed {
		q.e.setTimer(q, ucs.Time(q.e.now.Load())+maxTimerDelay)
	}
	q.route.peer.wake()
	return true
}

// postFast posts and sends r over UDP. It returns false, without side effects, if r
// cannot take the fast path or is batched with later posts. The caller owns the queue
// pair and holds the posters' lock; if the result is true, postFast has released the
// lock.
//
//hot:bench BenchmarkPingPong
func (q *qp) postFast(r *verbs.SendWR) bool {
	passes := q.e.passes.Load()
	if int(r.InlineLen) > q.fastUDPMax || q.lastPasses == passes || !q.fitsFast(r) || r.Flags&verbs.SendFence != 0 || q.d.faults != nil ||
		q.req.outstanding() > batchAbove || !q.canSendNow() {
		return false
	}
	q.lastPasses = passes
	s := &q.sq
	t := s.tail.pos()
	w := s.at(uint32(t))
	q.fillFast(w, r)
	s.counts.post(1)
	if q.uuar != nil {
		q.ringDoorbell(w, 1)
	}
	s.tail.publish(t + 1)
	q.unlockPosts()    // other goroutines may post while this one sends
	q.markMemoryUser() // for their work requests, which sendUDP may send too
	if q.sendUDP() {
		q.e.markDirty(q)
	}
	if !q.isTimed {
		q.e.setTimer(q, ucs.Time(q.e.now.Load())+maxTimerDelay)
	}
	return true
}

// canSendNow reports whether the next posted message can be sent at once and nothing is to
// be sent before it.
func (q *qp) canSendNow() bool {
	s, m, r := &q.sq, &q.req, &q.rsp
	t := s.end()
	return m.tx == t && t-m.head < uint32(len(s.ring)) && m.psn.Diff(m.una) < shortPackets*m.window.cur &&
		!m.failed && m.rnrWait == 0 && !m.probe.pending && r.pendingResponses == 0 && r.nak == 0 && r.flags&rspRefused == 0 &&
		q.failedCQ == nil && q.loadState() == verbs.StateRTS
}

// isFast reports whether w is a message of the UDP fast path.
func (w *wqe) isFast() bool {
	return fastOps>>w.op&1 != 0 && w.flags&(verbs.SendInline|verbs.SendFence) == verbs.SendInline && w.n <= verbs.InlineLen
}

// mayReceiveFast reports whether the expected request may take the fast path. A request
// that took it leaves this unchanged.
func (q *qp) mayReceiveFast() bool {
	return q.rsp.flags == 0 && q.rsp.gap == noGap && q.loadState() == verbs.StateRTS
}

// handleFastCell processes a cell that sendFast of the peer filled. It returns false,
// without side effects, if anything is unusual. The caller owns the queue pair.
//
//hot:bench BenchmarkPingPong
func (q *qp) handleFastCell(c *cell, now ucs.Time) bool {
	n := int(c.n)
	if c.op != wire.SendOnly || n > q.fastMax || c.nsg != 0 || c.psn != q.rsp.psn || c.pkey != q.pkey || !q.mayReceiveFast() {
		return false
	}
	return q.receiveFast(c.op, c.small[:n], c.flags, verbs.PSN(c.msn), now)
}

// addFast adds the next fast-path messages to t, as far as t and the window allow and
// until t has most packets. It returns false if it added none. The packet that fills the
// window has AckReq.
//
//hot:bench BenchmarkSmallStream
func (q *qp) addFast(t *udp.Batch, most int) bool {
	r := &q.req
	if t.State == udp.Singles {
		return false
	}
	open := shortPackets*r.window.cur - r.psn.Diff(r.una)
	n, bytes := 0, uint64(0)
	for end := q.sq.end(); r.tx != end && n < open && t.Count < most; n++ {
		w := q.sq.at(r.tx)
		if !w.isFast() {
			break
		}
		size := wire.BTHLen + wire.ICRCLen + (int(w.n)+3)&^3
		if w.op == verbs.OpWrite {
			size += wire.RETHLen
		}
		b := t.Reserve(size)
		if b == nil {
			break
		}
		b = b[:udp.Slack]
		f := wire.BTHFields{
			Opcode: wire.SendOnly, Solicited: w.flags&verbs.SendSolicited != 0,
			AckReq: n+1 == open || (w.flags|q.alwaysFlags)&verbs.SendSignaled != 0,
			PadCnt: uint8(-w.n & 3), PKey: q.pkey, DestQP: q.dest, PSN: w.psn,
		}
		to := b[wire.BTHLen:]
		if w.op == verbs.OpWrite {
			f.Opcode, f.Solicited = wire.WriteOnly, false
			wire.RETH(to).Put(w.remote, w.rkey, w.n)
			to = to[wire.RETHLen:]
		}
		wire.BTH(b).Put(&f)
		if w.n == 8 {
			*(*[8]byte)(to) = *(*[8]byte)(w.inline[:])
		} else {
			*(*[verbs.InlineLen]byte)(to) = w.inline
			for i := w.n; i&3 != 0; i++ {
				to[i] = 0
			}
		}
		q.txICRC.Seal(t.Peer.Prefix, b[:size], uint16(t.Count))
		t.Pos += size
		t.Total += size
		t.Count++
		bytes += uint64(w.n)
		r.tx++
	}
	if n == 0 {
		return false
	}
	r.psn = r.psn.Add(n)
	q.updateSndMax()
	q.count(cntTxPackets, uint64(n))
	q.count(cntTxBytes, bytes)
	return true
}

// handleFastBatch processes the fast-path messages among the packets i up to all of g, as
// long as they are the expected ones. It returns how many it processed. The caller owns
// the queue pair and holds the receive token.
//
//hot:bench BenchmarkSmallStream
func (q *qp) handleFastBatch(g *udp.Datagram, i, all int, now ucs.Time) (n int) {
	if q.fastUDPMax < 0 || !q.mayReceiveFast() || !q.route.udp.Matches(g) {
		return 0
	}
	for ; i < all; i++ {
		b := g.Packet(i)
		if len(b) < udp.MinPacket || len(b) > udp.Slack {
			break
		}
		h := wire.BTH(b)
		if h.Opcode() != wire.SendOnly && h.Opcode() != wire.WriteOnly || h.DestQP() != q.num || h.PKey() != q.pkey || h.PSN() != q.rsp.psn ||
			h.Version() != 0 || len(b)&3 != 0 {
			break
		}
		end := len(b) - wire.ICRCLen - h.PadCnt()
		if end < wire.BTHLen || q.icrc != udp.ICRCNone && !q.rxICRC.Valid(g.Prefix, b, uint16(i)) {
			break
		}
		flags := uint8(0)
		if h.Solicited() {
			flags = cellSE
		}
		if h.AckReq() {
			flags |= cellAckReq
		}
		if !q.receiveFast(h.Opcode(), b[wire.BTHLen:end], flags, 0, now) {
			break
		}
		n++
	}
	return n
}

// receiveFast executes the expected request, a SEND Only or WRITE Only, as
// handlePacket and handleRequest do. b is what follows its BTH, without padding and
// ICRC. flags are those of a cell: cellSE, cellAckReq, and cellAck if an
// acknowledgement of ack precedes the request. It returns false, without side effects,
// if anything is unusual. The caller owns the queue pair. It has checked the
// destination, the P_Key, the PSN and mayReceiveFast.
//
//hot:bench BenchmarkPingPong
func (q *qp) receiveFast(op wire.Opcode, b []byte, flags uint8, ack verbs.PSN, now ucs.Time) bool {
	r := &q.rsp
	if op == wire.WriteOnly {
		if len(b) <= wire.RETHLen || q.access&verbs.RemoteWrite == 0 {
			return false
		}
		h := wire.RETH(b)
		b = b[wire.RETHLen:]
		if int(h.DMALen()) != len(b) {
			return false
		}
		to, ok := q.d.remote(q.pd, h.RKey(), h.VA(), len(b), verbs.RemoteWrite)
		if !ok {
			return false
		}
		placeLastWord(to, b)
		q.count(cntRxPackets, 1)
		q.count(cntRxBytes, uint64(len(b)))
		r.kind = wire.KindWrite
		r.msn++
		q.updateAckState(flags&cellAckReq != 0, wire.PlaceOnly, now)
		return true
	}

	// The next receive must have one SGE that holds the message.
	rq := &q.rq
	if q.srq != nil {
		rq = &q.srq.recvRing
	}
	e := rq.peek()
	if e == nil {
		return false
	}
	id, ok := e.id, false
	var to []byte
	if e.nsg == 1 && len(b) <= int(e.sg[0].Len) {
		to, ok = q.d.local(q.recvPD, verbs.SGE{Addr: e.sg[0].Addr, Len: uint32(len(b)), LKey: e.sg[0].LKey}, verbs.LocalWrite)
	}
	if !ok || flags&cellAck != 0 && !q.handlePiggybackedAck(ack) {
		rq.unpeek()
		return false
	}
	if q.srq != nil {
		q.srq.skip()
	} else {
		q.rq.skip()
	}
	placeLastWord(to, b)
	q.count(cntRxPackets, 1)
	q.count(cntRxBytes, uint64(len(b)))
	r.kind = wire.KindSend
	r.received = uint32(len(b))
	r.msn++
	q.updateAckState(flags&cellAckReq != 0, wire.PlaceOnly, now)
	q.postCQE(q.recvCQ, &verbs.WC{ID: id, Op: verbs.WCRecv, Len: uint32(len(b)), QPN: q.num}, flags&cellSE != 0)
	q.count(cntCQEs, 1)
	return true
}

// handlePiggybackedAck processes an ACK piggybacked in a cell. It returns false, without
// side effects, if anything is unusual.
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
