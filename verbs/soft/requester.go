package soft

import (
	"time"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The requester sends the work requests of the send queue. completer.go completes them
// and decides what is retransmitted; window.go bounds what is outstanding.
//
// Invariants:
//   - una ≤ psn ≤ sndMax. The packets from una up to psn are outstanding. sndMax is beyond
//     psn only after goBack, until the packets between are retransmitted.
//   - A work request gets its PSNs when it is posted and keeps them. So its packets are
//     always the same, and goBack, skipTo and retransmit only move the send position,
//     which is tx, sent and psn.
//   - psn is the PSN of packet sent of work request tx. Work requests before tx are sent
//     completely.
//   - A work request completes after all before it, once all its packets are
//     acknowledged and its READ or atomic response has arrived.
//   - rdAtomic counts the READ and atomic requests whose responses are outstanding. goBack
//     counts again.
//
// Long READs are split. A responder sends a READ response without flow control: only
// the request bounds how many packets arrive at once. So each request asks for a part of
// window.part packets, and the window allows as many outstanding parts as the local
// socket has room for. Parts end at fixed multiples of window.part packets of the READ,
// also when a retransmission starts between two.

// requester is the side of a queue pair that sends requests. Work requests are
// identified by running numbers, as in sendQueue.
type requester struct {
	head        uint32    // the oldest work request without a completion
	tx          uint32    // the work request that is being sent
	sent        uint32    // packets of tx that were sent
	psn         verbs.PSN // of the next packet
	una         verbs.PSN // the oldest PSN that is not acknowledged
	sndMax      verbs.PSN // one beyond the last PSN ever sent
	rerequested verbs.PSN // missing responses before it were requested again; una: none were
	impliedAcks int       // messages received from the peer since una advanced: implied ACKs
	rdAtomic    int       // outstanding READs and atomics
	maxRdAtomic,
	retryCnt, rnrRetry uint8
	retries, rnrRetries uint8 // retries left
	failed              bool  // a work request failed locally: nothing after it is sent
	window              window
	fill                gapFill
	reorder             reorderBuffer // responses that arrived before their predecessors
	gapDeadline         ucs.Time      // when missing responses are requested again; 0: no timer
	probe               probe
	lastProgress        ucs.Time
	rnrWait             ucs.Time      // no sending before this time, after an RNR NAK; negative: for so long from the next expire on
	timeout             time.Duration // of a retransmission; 0: none
}

// nextRequest builds the next packet of the send queue. It returns false if there is
// none or if sending must wait: for an RNR pause, a fence, outstanding READs, the window,
// or a state in which nothing new starts. Whatever ends the wait makes transmit run
// again, so no work request is forgotten.
//
// A work request that fails locally stops the queue. It completes with its error once
// all before it have completed (completeFailed), as an adapter does.
func (q *qp) nextRequest(p *packet) bool {
	r := &q.req
	tail := q.sq.end()
	for r.tx != tail {
		if r.failed || r.rnrWait != 0 {
			return false
		}

		// A fence waits for outstanding READs and atomics, and these are limited by
		// maxRdAtomic.
		w := q.sq.at(r.tx)
		readOrAtomic := w.isReadOrAtomic()
		if r.sent == 0 && w.flags&verbs.SendFence != 0 && r.rdAtomic > 0 || readOrAtomic && r.rdAtomic >= int(r.maxRdAtomic) {
			if readOrAtomic && r.maxRdAtomic == 0 { // it would never start
				w.status, r.failed = verbs.WCLocQPOpErr, true
				q.completeFailed()
			}
			return false
		}

		// A draining queue pair finishes the message that is under way.
		if q.loadState() != verbs.StateRTS && (q.loadState() != verbs.StateSQD || r.sent == 0 && !w.started) {
			return false
		}

		// A local invalidate or a bind takes no packet. It is executed once, and completes in
		// its turn.
		if w.numPSNs == 0 {
			r.tx++
			if !w.done {
				if w.done = q.executeLocal(w); !w.done {
					w.status, r.failed = verbs.WCMWBindErr, true
				}
				q.retire(r.una)
			}
			continue
		}

		if !q.windowAllows(w) {
			return false
		}
		if q.buildRequest(w, p) {
			q.updateSndMax()
			q.count(cntTxPackets, 1)
			q.count(cntTxBytes, uint64(p.n))
			return true
		}
		if w.status != verbs.WCSuccess {
			r.failed = true
			q.completeFailed()
			return false
		}
	}
	return false
}

// outstanding returns how many packets are outstanding, less the peer's messages received
// since the last ACK. In a request-response pattern messages imply ACKs, and real ACKs
// are then rare. It is an estimate for batching alone; the window counts all packets
// without an ACK.
func (r *requester) outstanding() int { return r.psn.Diff(r.una) - r.impliedAcks }

// updateSndMax records that the packets before psn have been sent. A request to the peer
// also begins a new run of unacknowledged messages at the responder.
func (q *qp) updateSndMax() {
	q.rsp.unackedRun = 0
	r := &q.req
	if r.sndMax.Before(r.psn) {
		r.sndMax = r.psn
	}
}

// isReadOrAtomic reports whether w is a read or an atomic operation.
func (w *wqe) isReadOrAtomic() bool { return w.op == verbs.OpRead || atomicOps>>w.op&1 != 0 }

// packetOps lists the opcodes of First, Middle, Last and Only packets by operation.
type packetOps [16][4]wire.Opcode

var dataOps = packetOps{
	verbs.OpWrite:    {wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteOnly},
	verbs.OpWriteImm: {wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm, wire.WriteOnlyImm},
	verbs.OpSend:     {wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendOnly},
	verbs.OpSendImm:  {wire.SendFirst, wire.SendMiddle, wire.SendLastImm, wire.SendOnlyImm},
	verbs.OpSendInv:  {wire.SendFirst, wire.SendMiddle, wire.SendLastInv, wire.SendOnlyInv},
}

// unreliableOps are the opcodes of unreliable connections.
var unreliableOps = packetOps{
	verbs.OpWrite:    {wire.UC + wire.WriteFirst, wire.UC + wire.WriteMiddle, wire.UC + wire.WriteLast, wire.UC + wire.WriteOnly},
	verbs.OpWriteImm: {wire.UC + wire.WriteFirst, wire.UC + wire.WriteMiddle, wire.UC + wire.WriteLastImm, wire.UC + wire.WriteOnlyImm},
	verbs.OpSend:     {wire.UC + wire.SendFirst, wire.UC + wire.SendMiddle, wire.UC + wire.SendLast, wire.UC + wire.SendOnly},
	verbs.OpSendImm:  {wire.UC + wire.SendFirst, wire.UC + wire.SendMiddle, wire.UC + wire.SendLastImm, wire.UC + wire.SendOnlyImm},
}

// buildRequest builds the next packet of w and advances the send position. It returns
// false with w.status set if the payload's memory is not valid.
//
// The packet follows from w and its number alone, so a retransmission has the headers of
// the first transmission. Only AckReq may differ. The payload is read again: the program
// must not change it before the work request completes.
func (q *qp) buildRequest(w *wqe, p *packet) bool {
	r := &q.req
	p.DestQP, p.PSN, p.PKey = q.dest, r.psn, q.pkey
	p.Solicited, p.AckReq, p.n, p.nsg = false, false, 0, 0

	switch w.op {
	case verbs.OpRead:
		// The next part. It takes a PSN for each packet of its response.
		n := q.nextPart(w)
		off := uint32(r.psn.Diff(w.psn) * q.mtu)
		p.Opcode, p.AckReq = wire.ReadRequest, true
		p.VA, p.RKey, p.DMALen = w.remote+uint64(off), w.rkey, min(w.n-off, uint32(n*q.mtu))
		r.psn = r.psn.Add(n)
		r.rdAtomic++
		if r.sent = uint32(r.psn.Diff(w.psn)); r.sent == w.numPSNs {
			r.tx, r.sent = r.tx+1, 0
		}
		return true
	case verbs.OpFetchAdd, verbs.OpCompareSwap:
		p.Opcode, p.CmpDt = wire.FetchAdd, 0
		if w.op == verbs.OpCompareSwap {
			p.Opcode, p.CmpDt = wire.CompareSwap, w.compareOrQKey
		}
		p.VA, p.RKey, p.SwapDt, p.AckReq = w.remote, w.rkey, w.swapOrQPN, true
		r.psn = r.psn.Add(1)
		r.rdAtomic++
		r.tx, r.sent = r.tx+1, 0
		return true

	default: // a SEND or WRITE, below
	}

	// The next packet of a SEND or WRITE. Only the first has a RETH, only the last the
	// immediate data.
	off := int(r.sent) * q.mtu
	n := min(int(w.n)-off, q.mtu)
	ops := &q.dataOps[w.op&15]
	last := off+n == int(w.n)
	switch {
	case !last && r.sent == 0:
		p.Opcode = ops[0]
	case !last:
		p.Opcode = ops[1]
	case r.sent != 0:
		p.Opcode = ops[2]
	default:
		p.Opcode = ops[3]
	}
	if r.sent == 0 {
		p.VA, p.RKey, p.DMALen = w.remote, w.rkey, w.n
	}
	if !q.gather(w, off, n, p) {
		w.status = verbs.WCLocProtErr
		return false
	}
	r.psn = r.psn.Add(1)
	r.sent++
	p.AckReq = q.wantsAckReq(w, last) && q.typ == verbs.RC
	if last {
		r.tx, r.sent = r.tx+1, 0
		p.ImmDt = w.imm
		p.Solicited = w.flags&verbs.SendSolicited != 0 && w.op != verbs.OpWrite
	}
	return true
}

// nextPart returns how many packets the next part of a READ has.
func (q *qp) nextPart(w *wqe) int {
	at := q.req.psn.Diff(w.psn)
	return min(q.req.window.part-at%q.req.window.part, int(w.numPSNs)-at)
}

// gather makes n bytes of w's data, starting at off, the payload of p. It returns false
// if a key is not valid. The payload is referenced, not copied. After a time-out it is
// marked for copying: the peer may have the data, so the program may be changing it.
func (q *qp) gather(w *wqe, off, n int, p *packet) bool {
	p.n, p.nsg, p.inline, p.retransmitted = n, 0, false, q.req.retries != q.req.retryCnt
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
		p.sg[p.nsg], p.sge[p.nsg] = b, s
		p.nsg++
		if n -= int(s.Len); n == 0 {
			return true
		}
	}
	return false
}

// goBack moves the send position back to psn, which is not before una, so that all
// packets from psn on are retransmitted, unless a response shows in time that they
// arrived (handleResponse). psn may lie within a work request: tx and sent then name the
// packet. Requests from there on are marked started, because a draining queue pair
// retransmits them too.
func (q *qp) goBack(psn verbs.PSN) {
	r := &q.req
	end := r.tx
	if r.sent > 0 {
		end++
	}
	r.rdAtomic, r.rerequested, r.fill.n = 0, r.una, 0
	r.probe.cancelRTT()
	for i := r.head; i != end; i++ {
		w := q.sq.at(i)
		if d := psn.Diff(w.psn); d < int(w.numPSNs) {
			r.tx, r.psn, r.sent = i, psn, uint32(max(d, 0))
			r.failed = false // the failed work request is reached again, and fails again
			q.count(cntRetransmits, 1)
			for ; i != end; i++ {
				q.sq.at(i).started = true
			}
			return
		}
		if w.isReadOrAtomic() && !w.done {
			r.rdAtomic++
		}
	}
}
