package soft

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The completer completes work requests when their packets are acknowledged, and
// decides what is retransmitted. The requester's PSNs are ordered una <= psn <= sndMax.
// Packets before una are acknowledged. psn is the next packet to send; goBack sets it
// back to retransmit. sndMax follows the last packet that was ever sent.
//
// Invariants:
//   - A response is valid if una <= its PSN < sndMax. A response at or after psn is to a
//     packet that was sent before goBack. It is as good as any other, and makes the
//     retransmission up to it unnecessary.
//   - Work requests complete in the order of the send queue.
//   - An acknowledgement of a packet acknowledges all before it (implied ACK). But it
//     does not complete a READ or an atomic: its own response must arrive. A later
//     response must not take effect before. handleResponse returns false then, and the
//     caller keeps the packet or drops it.
//   - A retransmission is caused by a NAK, a missing response, a probe (probe.go) or the
//     time-out. Only the time-out uses up a retry. Progress of una restores all retries.

// nakStatus maps a fatal NAK code to the status of the work request that it ends.
var nakStatus = map[wire.Syndrome]verbs.WCStatus{
	wire.NakInvalid:      verbs.WCRemInvReqErr,
	wire.NakRemoteAccess: verbs.WCRemAccessErr,
	wire.NakRemoteOp:     verbs.WCRemOpErr,
	wire.NakInvalidRD:    verbs.WCRemInvRDReqErr,
}

// retryForever is the RNR retry count that means no limit.
const retryForever = 7

// handleResponse handles an acknowledgement or a response. It returns false if a READ or
// atomic response before p is missing. p then has no effect beyond that response.
func (q *qp) handleResponse(p *packet) bool {
	if s := q.loadState(); s != verbs.StateRTS && s != verbs.StateSQD {
		return true
	}
	r := &q.req
	info := p.Opcode.Info()
	isAck := p.Opcode == wire.Acknowledge
	if p.PSN.Before(r.una) || !p.PSN.Before(r.sndMax) {
		q.count(cntDuplicates, 1)
		return true
	}

	// A NAK acknowledges all packets before its PSN. It may be the response to a request
	// that goBack scheduled for retransmission; skipTo then moves psn past the requests
	// before it. After a sequence NAK the requester retransmits the missing packets
	// (PeerProbe) or everything from the missing packet on. Any other NAK is fatal. The
	// responder is then in the error state and sends no further response. So a READ before
	// the refused request that lacks its response never completes. Being the oldest work
	// request, it gets the status of the NAK.
	if isAck && p.Syndrome.IsNak() {
		q.count(cntNaks, 1)
		q.skipTo(p.PSN)
		retired := !r.psn.Before(p.PSN)
		if retired {
			retired = q.retire(p.PSN)
		} else {
			q.retire(r.psn)
		}
		status, known := nakStatus[p.Syndrome]
		switch {
		case p.Syndrome == wire.NakSequence && r.probe.enabled:
			if retired || p.PSN.Before(r.psn) {
				q.fillGap(p.PSN)
			}
		case p.Syndrome == wire.NakSequence:
			if retired && r.una == p.PSN {
				q.reduceWindow()
				q.goBack(p.PSN)
			}
		case known:
			q.failSend(status)
		default:
			q.failSend(verbs.WCBadRespErr)
		}
		return true
	}

	// A response at or after psn shows that packets which goBack scheduled for
	// retransmission were executed: psn advances past them. A READ or atomic that p
	// responds to counts as sent. If a READ before p lacks its response, that READ is
	// retransmitted first.
	if !p.PSN.Before(r.psn) {
		if isAck {
			q.skipTo(p.PSN.Add(1))
		} else if q.skipTo(p.PSN); r.psn == p.PSN && q.sq.at(r.tx).isReadOrAtomic() {
			q.buildRequest(q.sq.at(r.tx), &q.txPacket)
		}
		if !p.PSN.Before(r.psn) {
			q.retire(r.psn)
			q.count(cntDuplicates, 1)
			return false
		}
	}

	isRead := info.Kind == wire.KindReadResponse
	switch {
	case isRead || p.Opcode == wire.AtomicAcknowledge:
	case p.Syndrome.IsAck():
		return q.retire(p.PSN.Add(1))
	case p.Syndrome.IsRNR():
		// The receiver had no posted receive. The requester pauses for the time that the
		// NAK demands, and then retransmits from that packet on.
		if !q.retire(p.PSN) {
			return false
		}
		if r.una != p.PSN {
			return true
		}
		if r.rnrRetry != retryForever {
			if r.rnrRetries == 0 {
				q.failSend(verbs.WCRNRRetryExcErr)
				return true
			}
			r.rnrRetries--
		}
		q.goBack(p.PSN)
		r.retries = r.retryCnt                                  // the peer responds, so only rnrRetry limits the wait
		r.rnrWait = -ucs.Time(wire.RNRTimer(p.Syndrome.Code())) // negative: expireTimers adds the present time
		r.lastProgress = 0
		q.e.setTimer(q, 0)
		return true
	default:
		return true // a reserved syndrome
	}

	// A READ or atomic response. Once all before it is acknowledged, it must belong to
	// the oldest work request, and be the packet that this one expects next.
	if !q.retire(p.PSN) {
		if isRead {
			q.count(cntOutOfSequence, 1)
		}
		return false
	}
	var w *wqe
	if r.head != r.tx || r.sent != 0 {
		w = q.sq.at(r.head)
	}
	switch {
	case w == nil || !w.isReadOrAtomic() || w.done || p.PSN.Diff(w.psn) < 0 || p.PSN.Diff(w.psn) >= int(w.numPSNs) || isRead != (w.op == verbs.OpRead):
		q.failSend(verbs.WCBadRespErr)
	case isRead:
		done := int(w.received) / q.mtu // packets
		left := int(w.n - w.received)
		endsPart := done+1 == int(w.numPSNs) || (done+1)%r.window.part == 0
		if p.PSN != w.psn.Add(done) || p.n != min(left, q.mtu) || info.Place.Ends() != endsPart {
			q.failSend(verbs.WCBadRespErr)
			return true
		}
		if !q.scatter(q.pd, w.sg[:w.nsg], int(w.received), p, true) {
			q.failSend(verbs.WCLocProtErr)
			return true
		}
		w.received += uint32(p.n)
		q.advanceUna(p.PSN.Add(1))
		if endsPart {
			r.rdAtomic--
		}
		if p.n == left {
			w.done = true
			q.retire(p.PSN.Add(1))
		}
	default:
		to, ok := q.d.local(q.pd, w.sg[0], verbs.LocalWrite)
		if !ok {
			q.failSend(verbs.WCLocProtErr)
			return true
		}
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], p.OrigRemDt)
		dma(to, b[:])
		w.done = true
		r.rdAtomic--
		q.retire(p.PSN.Add(1))
	}
	return true
}

// retire treats all packets before una as acknowledged and completes their work
// requests. It returns false if a READ or atomic response before una is missing. Then una
// advances only to that response, and nothing behind it completes.
//
// A peer without PeerProbe is then asked for that response again: the requester goes
// back to it, once for each stream of responses. The PSNs of one stream increase, so its
// further responses are dropped without a retransmission. A PSN that is not after the
// last one starts another stream, in which the response is missing too.
func (q *qp) retire(una verbs.PSN) bool {
	r := &q.req
	q.retireData(una)
	for r.head != r.tx || r.sent > 0 { // parts of a READ at tx may be outstanding
		w := q.sq.at(r.head)
		if w.status != verbs.WCSuccess {
			break
		}
		if w.isReadOrAtomic() && !w.done {
			if have := w.psn.Add(int(w.received) / q.mtu); have.Before(una) {
				q.advanceUna(have)
				if !r.probe.enabled {
					if !have.Before(r.rerequested) || !r.rerequested.Before(una) {
						q.goBack(have)
					}
					r.rerequested = una
				}
				return false
			}
			break
		}
		// A local operation has no PSN: it completes once it is executed.
		if w.numPSNs > 0 && una.Before(w.psn.Add(int(w.numPSNs))) || w.numPSNs == 0 && !w.done {
			break
		}
		q.completeSend(w, verbs.WCSuccess)
	}
	q.advanceUna(una)
	q.completeFailed()
	return true
}

// retireData completes acknowledged sends and writes before una, from the oldest work
// request on. It stops at the first READ, atomic or local invalidate, and at the first
// work request that failed or is not acknowledged.
func (q *qp) retireData(una verbs.PSN) {
	r := &q.req
	for r.head != r.tx {
		w := q.sq.at(r.head)
		if plainOps>>w.op&1 == 0 || w.status != verbs.WCSuccess || una.Before(w.psn.Add(int(w.numPSNs))) {
			return
		}
		if (w.flags|q.alwaysFlags)&verbs.SendSignaled != 0 {
			q.completeSend(w, verbs.WCSuccess)
			continue
		}
		r.head++
		cpu.StoreRelease32(&q.sq.head, r.head)
	}
}

// advanceUna records that packets before una are acknowledged. It restarts the
// retransmission timer and the retry counts: only a peer that acknowledges nothing at all
// uses up the retries. The window grows, and the round trip is measured.
func (q *qp) advanceUna(una verbs.PSN) {
	r := &q.req
	if n := una.Diff(r.una); n > 0 {
		if r.probe.pending && r.sndMax != una {
			r.window.halve() // the probe retransmitted a lost packet
		}
		r.window.acked(n)
		r.probe.acked(una, ucs.Time(q.e.now.Load()))
		r.una, r.lastProgress, r.impliedAcks = una, 0, 0
		if r.rerequested.Before(una) {
			r.rerequested = una
		}
		r.retries, r.rnrRetries = r.retryCnt, r.rnrRetry
	}
}

// completeFailed completes a work request that failed locally once all before it are
// completed. It then moves the queue pair to the error state.
func (q *qp) completeFailed() {
	r := &q.req
	if r.failed && r.head != q.sq.end() && q.sq.at(r.head).status != verbs.WCSuccess {
		q.failSend(q.sq.at(r.head).status)
	}
}

// failSend completes the oldest work request with status and moves the queue pair to
// the error state, which flushes all others. The program sees one error, at the work
// request that caused it or at the oldest that depends on it.
//
// An unreliable connection that sends moves to state SQE instead: its receives go on.
func (q *qp) failSend(status verbs.WCStatus) {
	r := &q.req
	if r.head != q.sq.end() {
		w := q.sq.at(r.head)
		r.psn = w.psn.Add(int(w.numPSNs))
		q.completeSend(w, status)
	}
	if q.typ == verbs.UC && q.loadState() == verbs.StateRTS {
		q.setState(qpSQE)
		q.flushSends()
		return
	}
	q.enterErr()
}

// sendWCOps maps the operation of a work request to the opcode of its completion.
var sendWCOps = [...]verbs.WCOpcode{
	verbs.OpWrite: verbs.WCWrite, verbs.OpWriteImm: verbs.WCWrite, verbs.OpSend: verbs.WCSend, verbs.OpSendImm: verbs.WCSend,
	verbs.OpRead: verbs.WCRead, verbs.OpCompareSwap: verbs.WCCompareSwap, verbs.OpFetchAdd: verbs.WCFetchAdd,
	verbs.OpLocalInv: verbs.WCLocalInv, verbs.OpBindMW: verbs.WCBindMW, verbs.OpSendInv: verbs.WCSend,
}

// completeSend completes the oldest work request. It posts a completion if the work request
// is signaled or has failed. The store to sq.head hands its slot back to the posters, of
// which one may overwrite the work request at once. It comes before the completion: a
// program that has polled the completion may use the slot.
func (q *qp) completeSend(w *wqe, status verbs.WCStatus) {
	r := &q.req
	var c verbs.WC
	posts := status != verbs.WCSuccess || (w.flags|q.alwaysFlags)&verbs.SendSignaled != 0
	if posts {
		c = verbs.WC{ID: w.id, Status: status, Op: sendWCOps[w.op&15], Len: w.n, QPN: q.num}
	}
	r.head++
	cpu.StoreRelease32(&q.sq.head, r.head)
	if posts {
		q.postCQE(q.sendCQ, &c, false)
		q.count(cntCQEs, 1)
	}
}

// flushSends completes all queued work requests with WCFlushErr and resets the
// requester. Nothing is outstanding after it: late responses are duplicates.
func (q *qp) flushSends() {
	r := &q.req
	for r.head != q.sq.end() {
		w := q.sq.at(r.head)
		r.psn = w.psn.Add(int(w.numPSNs)) // for the next one: the queue pair of state SQE sends again
		w.bind = nil
		q.completeSend(w, verbs.WCFlushErr)
	}
	r.tx, r.sent, r.failed, r.rdAtomic = r.head, 0, false, 0
	r.una, r.sndMax, r.rerequested, r.lastProgress, r.rnrWait = r.psn, r.psn, r.psn, 0, 0
	r.probe.rttStart, r.probe.pending = 0, false
}
