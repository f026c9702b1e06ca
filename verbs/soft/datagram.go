package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// privilegedQKey is a bit of a work request's Q_Key. If it is set, the packet carries
// the queue pair's own Q_Key.
const privilegedQKey = 1 << 31

// sendDatagrams sends queued datagrams. It returns true if the link takes no more now
// and some are left. Over UDP it batches consecutive datagrams to one peer. A datagram
// completes once it is sent.
func (q *qp) sendDatagrams() bool {
	r := &q.req
	batched := q.d.kind == overUDP && q.d.faulty == nil
	var p packet
	var t *segmentBatch
	bad := verbs.WCSuccess
	for r.tx != q.sq.end() && q.loadState() == verbs.StateRTS {
		w := q.sq.at(r.tx)
		if bad = q.makeDatagram(w, &p); bad != verbs.WCSuccess {
			break
		}
		switch {
		case !batched:
			q.sendOne(&w.ah.route, &p)
			r.tx++
			q.completeDatagrams()
			continue
		case t != nil && t.peer == &w.ah.route.udp && t.add(&p):
		default:
			if !q.sendBatch(t) {
				return true
			}
			t = q.d.udp.beginBatch(&w.ah.route.udp)
			t.add(&p)
		}
		r.tx++
	}
	if !q.sendBatch(t) {
		return true
	}
	if bad != verbs.WCSuccess {
		q.failDatagram(bad)
	}
	q.checkDrained()
	return false
}

// makeDatagram makes the packet of w. It returns the status of a work request that
// cannot be sent.
func (q *qp) makeDatagram(w *wqe, p *packet) verbs.WCStatus {
	switch {
	case w.ah == nil || !samePD(w.ah.pd, q.pd):
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

// sendBatch sends a batch of datagrams and completes them; nil: no batch. It returns
// false if the socket is full. Datagrams that the socket did not take stay queued.
func (q *qp) sendBatch(t *segmentBatch) bool {
	if t == nil {
		return true
	}
	n := t.count
	done, st := t.sendMost()
	switch st {
	case ucs.OK:
	case ucs.NoResource:
		q.req.tx = q.req.head + uint32(done)
		q.completeDatagrams()
		return false
	default:
		q.count(cntDroppedInbox, uint64(n))
	}
	q.completeDatagrams()
	return true
}

// completeDatagrams completes the datagrams before tx.
func (q *qp) completeDatagrams() {
	r := &q.req
	for r.head != r.tx {
		w := q.sq.at(r.head)
		q.count(cntTxPackets, 1)
		q.count(cntTxBytes, uint64(w.n))
		r.psn = w.psn.Add(1)
		r.una = r.psn
		q.completeSend(w, verbs.WCSuccess)
	}
}

// failDatagram completes the oldest datagram with status and moves the queue pair to
// state SQE.
func (q *qp) failDatagram(status verbs.WCStatus) {
	q.completeSend(q.sq.at(q.req.head), status)
	q.req.tx = q.req.head
	q.setState(qpSQE)
	q.flushSends()
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
	putGRH(area[:], p.sgid, q.d.gid, p.tos, p.ttl, info.PacketLen(p.n))
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
