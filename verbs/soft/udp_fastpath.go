package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The UDP fast path: SENDs and WRITEs with inline data on a connected queue pair.
//
// One function (addFast) moves consecutive ones from the send queue into a segment
// batch. Another (handleFastBatch) moves them from the batch into memory and completions.
// Both have the effect of requester and responder and leave the same state. Each
// message is checked first; if anything is unusual, nothing is changed and the general
// path handles it. TestShortWayUDP runs one script over both paths.

// maxFastPacket is the length of the longest packet of the fast path.
const maxFastPacket = wire.BTHLen + wire.RETHLen + verbs.InlineLen + wire.ICRCLen

// hasUDPFastPath reports whether a queue pair has the UDP fast path.
func (q *qp) hasUDPFastPath() bool { return q.d.kind == overUDP && q.typ == verbs.RC }

// postFast posts and sends r, an inline message with nothing to send before it. It
// returns false, without side effects, if r is another kind of request or must wait.
// The caller owns the queue pair and holds the posters' lock; if the result is true,
// postFast has released the lock.
//
//hot:bench BenchmarkPingPong
func (q *qp) postFast(r *verbs.SendWR) bool {
	passes := q.d.passes.Load()
	if !q.fastUDP || q.lastPasses == passes || !q.fitsFast(r) || r.Flags&verbs.SendFence != 0 || q.d.faults != nil ||
		q.req.outstanding() > batchAbove || !q.canSendNow() {
		return false
	}
	q.lastPasses = passes
	s := &q.sq
	t := s.tail.pos()
	q.fillFast(s.at(uint32(t)), r)
	s.counts.post(1, !s.single)
	s.tail.publish(t + 1)
	q.unlockPosts()    // other goroutines may post while this one sends
	q.markMemoryUser() // for their work requests, which sendUDP may send too
	if q.sendUDP() {
		q.d.markDirty(q)
	}
	if !q.isTimed {
		q.d.setTimer(q, ucs.Time(q.d.now.Load())+maxTimerDelay)
	}
	return true
}

// isFast reports whether w is a message of the fast path.
func (w *wqe) isFast() bool {
	return fastOps>>w.op&1 != 0 && w.flags&(verbs.SendInline|verbs.SendFence) == verbs.SendInline
}

// nextIsFast reports whether the next work request to be sent can take the fast path.
func (q *qp) nextIsFast() bool {
	r, s := &q.req, &q.rsp
	return q.fastUDP && r.tx != q.sq.end() && q.sq.at(r.tx).isFast() && r.sent == 0 && !r.failed && r.rnrWait == 0 &&
		!r.probe.pending && r.psn.Diff(r.una) < shortPackets*r.window.cur && s.pendingResponses == 0 && q.loadState() == verbs.StateRTS
}

// fastLen returns the length of w's packet from the BTH to the ICRC.
func (w *wqe) fastLen() int {
	n := wire.BTHLen + wire.ICRCLen + (int(w.n)+3)&^3
	if w.op == verbs.OpWrite {
		n += wire.RETHLen
	}
	return n
}

// putFast encodes w's packet without the ICRC. full is set if it fills the window; the
// packet has AckReq then.
func (q *qp) putFast(w *wqe, b []byte, full bool) {
	_ = b[maxFastPacket-1]
	f := wire.BTHFields{
		Opcode: wire.SendOnly, Solicited: w.flags&verbs.SendSolicited != 0, AckReq: full || q.sigAll || w.flags&verbs.SendSignaled != 0,
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
		return
	}
	*(*[verbs.InlineLen]byte)(to) = w.inline
	for i := w.n; i&3 != 0; i++ {
		to[i] = 0
	}
}

// handleFastBatch processes the fast-path messages among the packets i up to all of g, as
// long as they are the expected ones. It returns how many it processed. The caller owns
// the queue pair and holds the receive token.
//
//hot:bench BenchmarkSmallStream
func (q *qp) handleFastBatch(g *datagram, i, all int, now ucs.Time) (n int) {
	r := &q.rsp
	if !q.fastUDP || !q.established || r.fatal || r.gap != noGap || r.hasRecv || !r.lastPlace.Ends() ||
		q.loadState() != verbs.StateRTS || !q.route.udp.matches(g) {
		return 0
	}
	for more := true; more && i < all; i++ {
		b := g.packet(i)
		if len(b) < minPacket || len(b) > maxFastPacket {
			break
		}
		h := wire.BTH(b)
		if h.DestQP() != q.num || h.PKey() != q.pkey || h.PSN() != r.psn || h.Version() != 0 || len(b)&3 != 0 {
			break
		}
		switch h.Opcode() {
		case wire.SendOnly:
			more = q.handleFastSend(g, b, i, now)
		case wire.WriteOnly:
			more = q.handleFastWrite(g, b, i, now)
		default:
			more = false
		}
		if more {
			n++
		}
	}
	return n
}

// handleFastSend processes a SEND Only. It returns false, without side effects, if anything
// is unusual.
func (q *qp) handleFastSend(g *datagram, b []byte, i int, now ucs.Time) bool {
	h := wire.BTH(b)
	n := len(b) - wire.BTHLen - wire.ICRCLen - h.PadCnt()
	if n < 0 || !q.rxICRC.Valid(g.prefix, b, uint16(i)) {
		return false
	}
	id, to, ok := q.peekFast(uint32(n))
	if !ok {
		return false
	}
	q.skipFast()
	placeLastWord(to, b[wire.BTHLen:wire.BTHLen+n])
	q.fastExecuted(h, wire.KindSend, n, now)
	q.postCQE(q.recvCQ, &verbs.WC{ID: id, Op: verbs.WCRecv, Len: uint32(n), QPN: q.num}, h.Solicited())
	q.count(cntCQEs, 1)
	return true
}

// handleFastWrite processes a WRITE Only. It returns false, without side effects, if
// anything is unusual.
func (q *qp) handleFastWrite(g *datagram, b []byte, i int, now ucs.Time) bool {
	h := wire.BTH(b)
	n := len(b) - wire.BTHLen - wire.RETHLen - wire.ICRCLen - h.PadCnt()
	if n <= 0 || q.access&verbs.RemoteWrite == 0 {
		return false
	}
	x := wire.RETH(b[wire.BTHLen:])
	addr, key := x.VA(), x.RKey()
	if int(x.DMALen()) != n || !q.rxICRC.Valid(g.prefix, b, uint16(i)) {
		return false
	}
	to, ok := q.d.remote(q.pd, key, addr, n, verbs.RemoteWrite)
	if !ok {
		return false
	}
	const at = wire.BTHLen + wire.RETHLen
	placeLastWord(to, b[at:at+n])
	q.fastExecuted(h, wire.KindWrite, n, now)
	return true
}

// fastExecuted updates the responder after a message of one packet with n bytes was
// executed.
func (q *qp) fastExecuted(h wire.BTH, kind wire.Kind, n int, now ucs.Time) {
	r := &q.rsp
	q.count(cntRxPackets, 1)
	q.count(cntRxBytes, uint64(n))
	r.kind, r.lastPlace = kind, wire.PlaceOnly
	r.msn++
	q.updateAckState(h.AckReq(), wire.PlaceOnly, now)
}
