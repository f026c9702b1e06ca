package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The short way over UDP: sends and writes of a connected queue pair whose data
// stands in the work request. Those that stand one behind the other go from the
// send queue into a train, and from the train into memory and completions, in one
// function at each end. Both do what the machines would do, and leave everything
// unusual to them before anything was done; one script runs both ways in
// TestShortWayUDP.

// maxShort is the longest packet that goes the short way.
const maxShort = wire.BTHLen + wire.RETHLen + verbs.InlineLen + wire.ICRCLen

// goesShort reports whether a queue pair has a short way over UDP.
func (q *qp) goesShort() bool { return q.d.kind == overUDP && q.typ == verbs.RC }

// postOne posts and sends r, a short message that nothing is before; false: it is
// something else, or has to wait, and nothing was done. The caller owns the queue
// pair and has the posters' lock, which it has no more where the answer is true.
//
// hot: BenchmarkPingPong.
func (q *qp) postOne(r *verbs.SendWR) bool {
	passes := q.d.passes.Load()
	if !q.shortUDP || q.pass == passes || !q.fillsShort(r) || r.Flags&verbs.SendFence != 0 || q.d.faulty != nil ||
		q.req.ahead() > holdAbove || !q.atRest() {
		return false
	}
	q.pass = passes
	s := &q.sq
	t := s.tail.pos()
	q.fillShort(s.at(uint32(t)), r)
	s.counted.post(1, !s.single)
	s.tail.end(t + 1)
	q.unlock() // others may post while this one sends
	q.looks()  // for what they post
	if q.sendUDP() {
		q.d.markDirty(q)
	}
	if !q.isTimed {
		q.d.due(q, ucs.Time(q.d.now.Load())+firstLook)
	}
	return true
}

// short reports whether w goes the short way.
func (w *wqe) short() bool {
	return shortOps>>w.op&1 != 0 && w.flags&(verbs.SendInline|verbs.SendFence) == verbs.SendInline
}

// shortNext reports whether what is to be sent next goes the short way.
func (q *qp) shortNext() bool {
	r, s := &q.req, &q.rsp
	return q.shortUDP && r.tx != q.sq.end() && q.sq.at(r.tx).short() && r.sent == 0 && !r.stuck && r.pause == 0 &&
		!r.probe.alone && r.psn.Diff(r.una) < shortPackets*r.window.now && s.asked == 0 && q.stateNow() == verbs.StateRTS
}

// shortLen is the length of w's packet from the BTH to the ICRC.
func (w *wqe) shortLen() int {
	n := wire.BTHLen + wire.ICRCLen + (int(w.n)+3)&^3
	if w.op == verbs.OpWrite {
		n += wire.RETHLen
	}
	return n
}

// putShort writes w's packet, but for the ICRC. full: it fills the window.
func (q *qp) putShort(w *wqe, b []byte, full bool) {
	_ = b[maxShort-1]
	f := wire.BTHFields{
		Opcode: wire.SendOnly, Solicited: w.flags&verbs.SendSolicited != 0, AckReq: full || q.sigAll || w.flags&verbs.SendSignaled != 0,
		Pad: uint8(-w.n & 3), PKey: q.pkey, Dest: q.dest, PSN: w.psn,
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

// arriveShorts acts on the short messages that stand in g from packet i up to all;
// it gives how many it took. The caller owns the queue pair and
// has the receive token.
//
// hot: BenchmarkSmallStream.
func (q *qp) arriveShorts(g *datagram, i, all int, now ucs.Time) (n int) {
	r := &q.rsp
	if !q.shortUDP || !q.known || r.fatal || r.gap != noGap || r.held || !r.ended.Ends() ||
		q.stateNow() != verbs.StateRTS || !q.to.udp.sent(g) {
		return 0
	}
	for more := true; more && i < all; i++ {
		b := g.packet(i)
		if len(b) < minPacket || len(b) > maxShort {
			break
		}
		h := wire.BTH(b)
		if h.Dest() != q.num || h.PKey() != q.pkey || h.PSN() != r.psn || h.Version() != 0 || len(b)&3 != 0 {
			break
		}
		switch h.Opcode() {
		case wire.SendOnly:
			more = q.arriveSend(g, b, i, now)
		case wire.WriteOnly:
			more = q.arriveWrite(g, b, i, now)
		default:
			more = false
		}
		if more {
			n++
		}
	}
	return n
}

// arriveSend acts on a send of one packet; false: something is unusual, and
// nothing was done.
func (q *qp) arriveSend(g *datagram, b []byte, i int, now ucs.Time) bool {
	h := wire.BTH(b)
	n := len(b) - wire.BTHLen - wire.ICRCLen - h.Pad()
	if n < 0 || !q.came.Right(g.pre, b, uint16(i)) {
		return false
	}
	id, to, ok := q.peekShort(uint32(n))
	if !ok {
		return false
	}
	q.skipShort()
	placeLast(to, b[wire.BTHLen:wire.BTHLen+n])
	q.tookShort(h, wire.KindSend, n, now)
	q.tell(q.recvCQ, &verbs.WC{ID: id, Op: verbs.WCRecv, Len: uint32(n), QPN: q.num}, h.Solicited())
	q.count(cntCQEs, 1)
	return true
}

// arriveWrite acts on a write of one packet; false: something is unusual, and
// nothing was done.
func (q *qp) arriveWrite(g *datagram, b []byte, i int, now ucs.Time) bool {
	h := wire.BTH(b)
	n := len(b) - wire.BTHLen - wire.RETHLen - wire.ICRCLen - h.Pad()
	if n <= 0 || q.access&verbs.RemoteWrite == 0 {
		return false
	}
	x := wire.RETH(b[wire.BTHLen:])
	addr, key := x.Addr(), x.RKey()
	if int(x.Len()) != n || !q.came.Right(g.pre, b, uint16(i)) {
		return false
	}
	to, ok := q.d.remote(q.pd, key, addr, n, verbs.RemoteWrite)
	if !ok {
		return false
	}
	const at = wire.BTHLen + wire.RETHLen
	placeLast(to, b[at:at+n])
	q.tookShort(h, wire.KindWrite, n, now)
	return true
}

// tookShort notes a message of one packet with n bytes that was carried out.
func (q *qp) tookShort(h wire.BTH, kind wire.Kind, n int, now ucs.Time) {
	r := &q.rsp
	q.count(cntRxPackets, 1)
	q.count(cntRxBytes, uint64(n))
	r.kind, r.ended = kind, wire.PlaceOnly
	r.msn++
	q.stands(h.AckReq(), wire.PlaceOnly, now)
}
