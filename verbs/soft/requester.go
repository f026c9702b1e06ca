package soft

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// requester is the side of a queue pair that sends requests. Work requests are
// counted by running numbers, as in sendQueue.
type requester struct {
	head uint32    // the oldest that has not ended
	tx   uint32    // the one that is being sent
	sent uint32    // packets of it that were sent
	psn  verbs.PSN // of the next packet
	una  verbs.PSN // the oldest that is not acknowledged
	top  verbs.PSN // behind the last that was ever sent
	late verbs.PSN // answers before it that are missing were requested again; una: none was
	met  int       // messages of the peer since una moved
	rd   int       // reads and atomics under way
	maxRd,
	retryCnt, rnrRetry uint8
	retries, rnrs uint8 // left
	stuck         bool  // a work request failed here: nothing is sent after it
	window        window
	fill          gapFill
	reorder       reorderBuffer // answers that came before their predecessors
	gapEnds       ucs.Time      // when those are requested again that are missing; 0: they were
	probe         probe
	since         ucs.Time
	pause         ucs.Time      // the receiver was not ready: send nothing before; negative: for so long from the next look at the clock on
	timeout       time.Duration // 0: none
}

// nextRequest makes the next packet of the send queue; false: there is none, or
// it must wait.
func (q *qp) nextRequest(p *packet) bool {
	r := &q.req
	tail := q.sq.end()
	for r.tx != tail {
		if r.stuck || r.pause != 0 {
			return false
		}
		w := q.sq.at(r.tx)
		if !q.mayStart(w) {
			if w.reads() && r.maxRd == 0 { // it never may
				w.status, r.stuck = verbs.WCLocQPOpErr, true
				q.endFailed()
			}
			return false
		}
		if q.stateNow() != verbs.StateRTS && (q.stateNow() != verbs.StateSQD || r.sent == 0 && !w.began) {
			return false
		}
		if w.op == verbs.OpLocalInv {
			if w.done {
				r.tx++
			} else {
				q.invalidateHere(w)
			}
			continue
		}
		if !q.mayFly(w) {
			return false
		}
		if q.request(w, p) {
			q.reached()
			q.count(cntTxPackets, 1)
			q.count(cntTxBytes, uint64(p.n))
			return true
		}
		if w.status != verbs.WCSuccess {
			r.stuck = true
			q.endFailed()
			return false
		}
	}
	return false
}

// ahead is how many packets are under way, less those of the peer that came since
// the last acknowledgement: where programs answer each other, messages stand for
// acknowledgements, which are then rare.
func (r *requester) ahead() int { return r.psn.Diff(r.una) - r.met }

// reached notes that packets before psn have been sent.
func (q *qp) reached() {
	q.rsp.run = 0
	r := &q.req
	if r.top.Before(r.psn) {
		r.top = r.psn
	}
}

// mayStart reports whether a message may begin now, or a part of a read.
func (q *qp) mayStart(w *wqe) bool {
	r := &q.req
	if r.sent == 0 && w.flags&verbs.SendFence != 0 && r.rd > 0 {
		return false
	}
	return !w.reads() || r.rd < int(r.maxRd)
}

// reads reports whether w is a read or an atomic operation.
func (w *wqe) reads() bool { return w.op == verbs.OpRead || atomicOps>>w.op&1 != 0 }

// request makes the next packet of w.
func (q *qp) request(w *wqe, p *packet) bool {
	r := &q.req
	p.dest, p.psn, p.pkey = q.dest, r.psn, q.pkey
	p.se, p.ackReq, p.n, p.nsg = false, false, 0, 0
	switch {
	case w.op == verbs.OpRead:
		q.requestRead(w, p)
		return true
	case w.op == verbs.OpFetchAdd:
		p.op, p.addr, p.rkey, p.swapAdd, p.compare = wire.FetchAdd, w.remote, w.rkey, w.a, 0
		r.psn = r.psn.Add(1)
	case w.op == verbs.OpCompareSwap:
		p.op, p.addr, p.rkey, p.swapAdd, p.compare = wire.CompareSwap, w.remote, w.rkey, w.a, w.b
		r.psn = r.psn.Add(1)
	default:
		return q.requestData(w, p)
	}
	p.ackReq = true
	r.rd++
	r.tx, r.sent = r.tx+1, 0
	return true
}

// dataOps are the opcodes of First, Middle, Last and Only, by operation.
var dataOps = [...][4]wire.Opcode{
	verbs.OpWrite:    {wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteOnly},
	verbs.OpWriteImm: {wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm, wire.WriteOnlyImm},
	verbs.OpSend:     {wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendOnly},
	verbs.OpSendImm:  {wire.SendFirst, wire.SendMiddle, wire.SendLastImm, wire.SendOnlyImm},
	verbs.OpSendInv:  {wire.SendFirst, wire.SendMiddle, wire.SendLastInv, wire.SendOnlyInv},
}

// requestData makes the next packet of a send or write.
func (q *qp) requestData(w *wqe, p *packet) bool {
	r := &q.req
	off := int(r.sent) * q.mtu
	n := min(int(w.n)-off, q.mtu)
	ops := &dataOps[w.op&15]
	last := off+n == int(w.n)
	switch {
	case !last && r.sent == 0:
		p.op = ops[0]
	case !last:
		p.op = ops[1]
	case r.sent != 0:
		p.op = ops[2]
	default:
		p.op = ops[3]
	}
	if r.sent == 0 {
		p.addr, p.rkey, p.dlen = w.remote, w.rkey, w.n
	}
	if !q.gather(w, off, n, p) {
		w.status = verbs.WCLocProtErr
		return false
	}
	r.psn = r.psn.Add(1)
	r.sent++
	p.ackReq = q.asks(w, last)
	if last {
		r.tx, r.sent = r.tx+1, 0
		p.imm = w.imm
		p.se = w.flags&verbs.SendSolicited != 0 && w.op != verbs.OpWrite
	}
	return true
}

// gather points p at n bytes of w's data from off on.
func (q *qp) gather(w *wqe, off, n int, p *packet) bool {
	p.n, p.nsg, p.inline, p.again = n, 0, false, q.req.retries != q.req.retryCnt
	if n == 0 {
		return true
	}
	if w.flags&verbs.SendInline != 0 {
		p.sg[0], p.nsg, p.inline = w.inline[off:off+n], 1, true
		return true
	}
	for i := range w.nsg {
		s := w.sg[i]
		if off >= int(s.Len) {
			off -= int(s.Len)
			continue
		}
		s.Addr += uint64(off)
		s.Len = uint32(min(int(s.Len)-off, n))
		off = 0
		b, ok := q.d.local(q.pd, s, 0)
		if !ok {
			return false
		}
		p.sg[p.nsg], p.ref[p.nsg] = b, s
		p.nsg++
		if n -= int(s.Len); n == 0 {
			return true
		}
	}
	return false
}

// invalidateHere carries out a local invalidate.
func (q *qp) invalidateHere(w *wqe) {
	if q.d.invalidate(q.pd, w.imm) {
		w.done = true
	} else {
		w.status = verbs.WCMWBindErr
		q.req.stuck = true
	}
	q.req.tx++
	q.retire(q.req.una)
}

// goBack has the requester send again from psn on, which is not before una.
func (q *qp) goBack(psn verbs.PSN) {
	r := &q.req
	end := r.tx
	if r.sent > 0 {
		end++
	}
	r.rd, r.late, r.fill.n = 0, r.una, 0
	r.probe.again()
	for i := r.head; i != end; i++ {
		w := q.sq.at(i)
		if d := psn.Diff(w.psn); d < int(w.npk) {
			r.tx, r.psn, r.sent = i, psn, uint32(max(d, 0))
			r.stuck = false // what failed here comes later, and fails again
			q.count(cntRetransmits, 1)
			for ; i != end; i++ {
				q.sq.at(i).began = true
			}
			return
		}
		if w.reads() && !w.done {
			r.rd++
		}
	}
}
