package soft

import (
	"net/netip"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// privilegedQKey is a bit of a work request's Q_Key. If it is set, the packet carries
// the queue pair's own Q_Key.
const privilegedQKey = 1 << 31

// nextDatagram makes the packet of the next queued datagram and returns its route. It
// returns nil if there is none, or if the datagram cannot be sent: datagramsSent fails it.
func (q *qp) nextDatagram(p *packet) *route {
	r := &q.req
	if r.tx == q.sq.end() || q.loadState() != verbs.StateRTS {
		return nil
	}
	w := q.sq.at(r.tx)
	if q.makeDatagram(w, p) != verbs.WCSuccess {
		return nil
	}
	r.tx++
	return &w.ah.route
}

// datagramsSent follows a send that the link did not refuse: all datagrams were sent, or
// the oldest one cannot be. That one completes with its status, and the queue pair moves
// to state SQE.
func (q *qp) datagramsSent() {
	r := &q.req
	if r.tx != q.sq.end() && q.loadState() == verbs.StateRTS {
		var p packet
		w := q.sq.at(r.tx)
		if st := q.makeDatagram(w, &p); st == verbs.WCSuccess {
			q.e.markDirty(q) // it was posted meanwhile
		} else {
			q.completeSend(w, st)
			r.tx = r.head
			q.setState(qpSQE)
			q.flushSends()
		}
	}
	q.checkDrained()
}

// makeDatagram makes the packet of w. It returns the status of a work request that
// cannot be sent.
func (q *qp) makeDatagram(w *wqe, p *packet) verbs.WCStatus {
	switch {
	case w.ah == nil || w.ah.pd.protection != q.pd.protection:
		return verbs.WCLocQPOpErr
	case int(w.n) > q.mtu:
		return verbs.WCLocLenErr
	case !q.gather(w, 0, int(w.n), p):
		return verbs.WCLocProtErr
	}
	p.Opcode = wire.UDSendOnly
	if w.op == verbs.OpSendImm {
		p.Opcode = wire.UDSendOnlyImm
	}
	p.DestQP, p.PSN, p.PKey, p.SrcQP, p.ImmDt = verbs.QPN(w.swapOrQPN), w.psn, q.pkey, q.num, w.imm
	p.Solicited, p.AckReq = w.flags&verbs.SendSolicited != 0, false
	if p.QKey = uint32(w.compareOrQKey); p.QKey&privilegedQKey != 0 {
		p.QKey = q.qkey
	}
	return verbs.WCSuccess
}

// completeDatagrams completes the datagrams before end.
func (q *qp) completeDatagrams(end uint32) {
	r := &q.req
	for r.head != end {
		w := q.sq.at(r.head)
		q.count(cntTxPackets, 1)
		q.count(cntTxBytes, uint64(w.n))
		r.psn = w.psn.Add(1)
		r.una = r.psn
		q.completeSend(w, verbs.WCSuccess)
	}
}

// receiveDatagram handles a received datagram.
func (q *qp) receiveDatagram(p *packet, info *wire.Info) {
	r := &q.rsp
	if p.QKey != q.qkey {
		q.count(cntDroppedQKey, 1)
		return
	}
	if p.n > q.mtu { // programs may rely on it: a receive buffer of one MTU holds every datagram
		q.count(cntDroppedLong, 1)
		return
	}
	if !q.popRecv(&r.recv) {
		q.count(cntDroppedInbox, 1)
		return
	}
	sg := r.recv.sg[:r.recv.nsg]
	if sgLen(sg) < p.n+grhLen {
		q.completeRecv(verbs.WCLocLenErr)
		q.enterErr()
		return
	}
	var g packet
	g.n, g.nsg = grhLen, 1
	var area [grhLen]byte
	g.sg[0] = area[:]
	putGRH(area[:], p, info.PacketLen(p.n))
	if !q.scatter(q.recvPD, sg, 0, &g, false) || !q.scatter(q.recvPD, sg, grhLen, p, true) {
		q.completeRecv(verbs.WCLocProtErr)
		q.enterErr()
		return
	}
	c := verbs.WC{
		ID: r.recv.id, Op: verbs.WCRecv, Flags: verbs.WCGRH, Len: uint32(p.n + grhLen),
		QPN: q.num, SrcQP: p.SrcQP, SLID: p.slid,
	}
	if info.Headers&wire.HasImm != 0 {
		c.Flags |= verbs.WCWithImm
		c.Imm = p.ImmDt
	}
	q.postCQE(q.recvCQ, &c, p.Solicited)
	q.count(cntCQEs, 1)
}

// grhLen is the length of the GRH area in front of a datagram's data.
const grhLen = wire.GRHLen

// putGRH writes the GRH area of a received datagram from its network headers. For IPv4 it
// is 20 zero bytes and the IPv4 header, for IPv6 the IPv6 header. n is the packet's length
// from the BTH to the ICRC.
//
// Source: IBTA vol. 1, annex A17 (RoCEv2), 17.9.3.
func putGRH(area []byte, p *packet, n int) {
	h := wire.Network{
		Src: netip.AddrPortFrom(p.sgid.Addr(), 0), Dst: netip.AddrPortFrom(p.dgid.Addr(), 0),
		TOS: p.tos, TTL: p.ttl, FlowLabel: p.flow,
	}
	wire.GRH(area).Put(&h, n)
}
