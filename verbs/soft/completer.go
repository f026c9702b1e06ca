package soft

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Completion and retransmission of requests. The requester's PSNs are ordered una <=
// psn <= top. Packets before una are acknowledged. psn is the next packet to send;
// goBack sets it back to retransmit. top follows the last packet that was ever sent.
//
// Invariants:
//   - A response is valid if una <= its PSN < top. A response at or after psn is to a
//     packet that was sent before goBack. It is as good as any other, and makes the
//     retransmission up to it unnecessary (cancelRetransmit).
//   - Work requests complete in the order of the send queue.
//   - An acknowledgement of a later packet does not complete a READ or an atomic. Its
//     own response must arrive. A later response must not take effect before: answered
//     returns false, and the caller keeps the packet or drops it.

// handleResponse handles an acknowledgement or a response. It returns false if a READ or
// atomic response before p is missing. p then has no effect beyond that response.
func (q *qp) handleResponse(p *packet) bool {
	if s := q.loadState(); s != verbs.StateRTS && s != verbs.StateSQD {
		return true
	}
	r := &q.req
	info := p.Opcode.Info()
	switch {
	case p.PSN.Before(r.una) || !p.PSN.Before(r.sndMax):
		q.count(cntDuplicates, 1)
		return true
	case p.Opcode == wire.Acknowledge && p.Syndrome.IsNak():
		q.handleNAK(p)
		return true
	case !p.PSN.Before(r.psn) && !q.cancelRetransmit(p):
		return false
	}
	switch {
	case info.Kind == wire.KindReadResponse:
		return q.handleReadResponse(p, info)
	case p.Opcode == wire.AtomicAcknowledge:
		return q.handleAtomicResponse(p)
	case p.Syndrome.IsAck():
		return q.retire(p.PSN.Add(1))
	case p.Syndrome.IsRNR():
		return q.handleRNR(p)
	}
	return true
}

// cancelRetransmit handles a response to a request that goBack scheduled for retransmission. It
// advances psn past the requests that p shows to be executed. It returns false if a
// READ before p lacks its response; that READ is then retransmitted first.
func (q *qp) cancelRetransmit(p *packet) bool {
	r := &q.req
	if p.Opcode == wire.Acknowledge {
		q.skipTo(p.PSN.Add(1))
	} else if q.skipTo(p.PSN); r.psn == p.PSN && q.sq.at(r.tx).isReadOrAtomic() {
		q.buildRequest(q.sq.at(r.tx), &q.txPacket) // counts as sent: p is its response
	}
	if p.PSN.Before(r.psn) {
		return true
	}
	q.retire(r.psn)
	q.count(cntDuplicates, 1)
	return false
}

// retire treats all packets before una as acknowledged and completes their work
// requests. It returns false if a READ or atomic response before una is missing. From a
// peer without PeerProbe it then requests that response again.
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
					q.rewindToMissing(have, una)
				}
				return false
			}
			break
		}
		if w.numPSNs > 0 && una.Before(w.psn.Add(int(w.numPSNs))) || w.numPSNs == 0 && !w.done {
			break
		}
		q.completeSend(w, verbs.WCSuccess)
	}
	q.advanceUna(una)
	q.completeFailed()
	return true
}

// rewindToMissing handles a response at psn while the response at have is missing, from a peer
// without PeerProbe. It retransmits from have on, once for each stream of responses.
// The PSNs of one stream increase, so its further responses are dropped without a
// retransmission. A PSN that is not after the last one starts another stream, in which
// the response is missing too.
func (q *qp) rewindToMissing(have, psn verbs.PSN) {
	r := &q.req
	rewind := !have.Before(r.rerequested) || !r.rerequested.Before(psn)
	if rewind {
		q.goBack(have)
	}
	r.rerequested = psn
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
		storeRelease32(&q.sq.head, r.head)
	}
}

// advanceUna records that packets before una are acknowledged. It restarts the
// retransmission timer and the retry counts.
func (q *qp) advanceUna(una verbs.PSN) {
	r := &q.req
	if n := una.Diff(r.una); n > 0 {
		if r.probe.pending && r.sndMax != una {
			r.window.halve() // the probe retransmitted a lost packet
		}
		r.window.acked(n)
		r.probe.acked(una, ucs.Time(q.d.now.Load()))
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
// the error state.
func (q *qp) failSend(status verbs.WCStatus) {
	r := &q.req
	if r.head != q.sq.end() {
		q.completeSend(q.sq.at(r.head), status)
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
// is signaled or has failed.
func (q *qp) completeSend(w *wqe, status verbs.WCStatus) {
	r := &q.req
	if status != verbs.WCSuccess || (w.flags|q.alwaysFlags)&verbs.SendSignaled != 0 {
		c := verbs.WC{ID: w.id, Status: status, Op: sendWCOps[w.op&15], Len: w.n, QPN: q.num}
		q.postCQE(q.sendCQ, &c, false)
		q.count(cntCQEs, 1)
	}
	r.head++
	storeRelease32(&q.sq.head, r.head)
}

// flushSends completes all queued work requests with WCFlushErr and resets the
// requester.
func (q *qp) flushSends() {
	r := &q.req
	for r.head != q.sq.end() {
		q.completeSend(q.sq.at(r.head), verbs.WCFlushErr)
	}
	r.tx, r.sent, r.failed, r.rdAtomic = r.head, 0, false, 0
	r.una, r.sndMax, r.rerequested, r.lastProgress, r.rnrWait = r.psn, r.psn, r.psn, 0, 0
	r.probe.rttStart, r.probe.pending = 0, false
}

// pendingRead returns the READ or atomic operation that a response at psn belongs to. It
// returns nil if that is not the oldest work request. The caller has retired psn.
func (q *qp) pendingRead(psn verbs.PSN) *wqe {
	r := &q.req
	if r.head == r.tx && r.sent == 0 {
		return nil
	}
	w := q.sq.at(r.head)
	if !w.isReadOrAtomic() || w.done || psn.Diff(w.psn) < 0 || psn.Diff(w.psn) >= int(w.numPSNs) {
		return nil
	}
	return w
}

// handleReadResponse places the payload of a READ response packet. It returns false if an
// earlier response is missing.
func (q *qp) handleReadResponse(p *packet, info *wire.Info) bool {
	if !q.retire(p.PSN) {
		q.count(cntOutOfSequence, 1)
		return false
	}
	w := q.pendingRead(p.PSN)
	if w == nil || w.op != verbs.OpRead || p.PSN != w.psn.Add(int(w.received)/q.mtu) {
		q.failSend(verbs.WCBadRespErr)
		return true
	}
	left := int(w.n - w.received)
	if p.n != min(left, q.mtu) || info.Place.Ends() != q.endsPart(w) {
		q.failSend(verbs.WCBadRespErr)
		return true
	}
	if !q.scatter(q.pd, w.sg[:w.nsg], int(w.received), p, true) {
		q.failSend(verbs.WCLocProtErr)
		return true
	}
	w.received += uint32(p.n)
	q.advanceUna(p.PSN.Add(1))
	if info.Place.Ends() {
		q.req.rdAtomic--
	}
	if p.n == left {
		w.done = true
		q.retire(p.PSN.Add(1))
	}
	return true
}

// handleAtomicResponse stores the original value that an atomic response carries. It returns
// false if an earlier response is missing.
func (q *qp) handleAtomicResponse(p *packet) bool {
	if !q.retire(p.PSN) {
		return false
	}
	w := q.pendingRead(p.PSN)
	if w == nil || w.op == verbs.OpRead {
		q.failSend(verbs.WCBadRespErr)
		return true
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], p.OrigRemDt)
	to, ok := q.d.local(q.pd, w.sg[0], verbs.LocalWrite)
	if !ok {
		q.failSend(verbs.WCLocProtErr)
		return true
	}
	dma(to, b[:])
	w.done = true
	q.req.rdAtomic--
	q.retire(p.PSN.Add(1))
	return true
}

// handleRNR handles an RNR NAK. It pauses the requester for the time that the NAK
// demands. It then retransmits from the packet that found no posted receive. It returns
// false if an earlier response is missing.
func (q *qp) handleRNR(p *packet) bool {
	r := &q.req
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
	r.rnrWait = -ucs.Time(wire.RNRTimer(p.Syndrome.Code())) // negative: expireRequester adds the present time
	r.lastProgress = 0
	q.d.setTimer(q, 0)
	return true
}

// retryForever is the RNR retry count that means no limit.
const retryForever = 7

// nakStatus maps a fatal NAK code to the status of the work request that it ends.
var nakStatus = map[wire.Syndrome]verbs.WCStatus{
	wire.NakInvalid:      verbs.WCRemInvReqErr,
	wire.NakRemoteAccess: verbs.WCRemAccessErr,
	wire.NakRemoteOp:     verbs.WCRemOpErr,
	wire.NakInvalidRD:    verbs.WCRemInvRDReqErr,
}

// handleNAK handles a NAK other than RNR.
//
// The NAK may be the response to a request that goBack scheduled for retransmission; skip then
// moves psn past the requests before it. After a sequence NAK the requester retransmits
// the missing packets (PeerProbe) or everything from the missing packet on. Any other
// NAK is fatal. The responder is then in the error state and sends no further response.
// So a READ before the refused request that lacks its response never completes. Being
// the oldest work request, it gets the status of the NAK.
func (q *qp) handleNAK(p *packet) {
	r := &q.req
	q.count(cntNaks, 1)
	q.skipTo(p.PSN)
	retired := !r.psn.Before(p.PSN)
	if retired {
		retired = q.retire(p.PSN)
	} else {
		q.retire(r.psn)
	}
	if p.Syndrome == wire.NakSequence {
		switch {
		case r.probe.enabled && (retired || p.PSN.Before(r.psn)):
			q.fillGap(p.PSN)
		case retired && r.una == p.PSN:
			r.window.halve()
			q.goBack(p.PSN)
		}
		return
	}
	if s, ok := nakStatus[p.Syndrome]; ok {
		q.failSend(s)
	} else {
		q.failSend(verbs.WCBadRespErr)
	}
}

// expireTimers serves the queue pair's expired timers. It returns when to call it again; 0:
// no timer runs.
//
// Concurrency: the caller owns the queue pair.
func (q *qp) expireTimers(now ucs.Time) ucs.Time {
	next := q.expireRequester(now)
	if r := &q.req; r.gapDeadline != 0 {
		if now >= r.gapDeadline {
			r.gapDeadline = 0
			q.requestMissing(len(r.reorder.packets))
		} else if next == 0 || r.gapDeadline < next {
			next = r.gapDeadline
		}
	}
	if s := &q.rsp; s.gap == gapOpen {
		if now >= s.gapDeadline {
			q.reportGap()
		} else if next == 0 || s.gapDeadline < next {
			next = s.gapDeadline
		}
	}
	if s := &q.rsp; s.ackState == ackDelayed {
		if now >= s.ackDeadline {
			s.ackState = ackDue
		} else if next == 0 || s.ackDeadline < next {
			next = s.ackDeadline
		}
	}
	return next
}

// expireRequester serves the timers of the requester: RNR pause, retransmission timeout
// and probe.
func (q *qp) expireRequester(now ucs.Time) ucs.Time {
	r := &q.req
	if r.rnrWait < 0 {
		r.rnrWait = now - r.rnrWait
	}
	if r.rnrWait != 0 {
		if now < r.rnrWait {
			return r.rnrWait
		}
		r.rnrWait = 0
	}
	if r.una == r.psn && !q.inboxFull() || r.timeout == 0 || q.loadState() < verbs.StateRTS || q.loadState() > verbs.StateSQD {
		r.lastProgress = 0
		return 0
	}
	if r.lastProgress == 0 || r.una == r.psn && q.peerConsumes() {
		r.lastProgress = now
		r.probe.startRTT(r.sndMax, now)
	}
	if now.Sub(r.lastProgress) < r.timeout {
		return min(r.lastProgress.Add(r.timeout), q.checkProbe(now))
	}
	q.count(cntTimeouts, 1)
	r.lastProgress = now
	if r.retries == 0 {
		q.failSend(verbs.WCRetryExcErr)
		return 0
	}
	r.retries--
	r.window.halve()
	r.probe.count, r.probe.pending = 0, r.probe.enabled
	q.goBack(r.una)
	return min(now.Add(r.timeout), q.checkProbe(now))
}
