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
//   - A response is valid if una <= its PSN < top. A response at or after psn answers a
//     packet that was sent before goBack. It is as good as any other, and makes the
//     retransmission up to it unnecessary (catchUp).
//   - Work requests complete in the order of the send queue.
//   - An acknowledgement of a later packet does not complete a READ or an atomic. Its
//     own response must arrive. A later response must not take effect before: answered
//     returns false, and the caller keeps the packet or drops it.

// answered handles an acknowledgement or a response. It returns false if a READ or
// atomic response before p is missing. p then has no effect beyond that response.
func (q *qp) answered(p *packet) bool {
	if s := q.stateNow(); s != verbs.StateRTS && s != verbs.StateSQD {
		return true
	}
	r := &q.req
	info := p.op.Info()
	switch {
	case p.psn.Before(r.una) || !p.psn.Before(r.top):
		q.count(cntDuplicates, 1)
		return true
	case p.op == wire.Acknowledge && p.syn.IsNak():
		q.refused(p)
		return true
	case !p.psn.Before(r.psn) && !q.catchUp(p):
		return false
	}
	switch {
	case info.Kind == wire.KindReadResponse:
		return q.readAnswer(p, info)
	case p.op == wire.AtomicAcknowledge:
		return q.atomicAnswer(p)
	case p.syn.IsAck():
		return q.retire(p.psn.Add(1))
	case p.syn.IsRNR():
		return q.notReady(p)
	}
	return true
}

// catchUp handles a response to a request that goBack scheduled for retransmission. It
// advances psn past the requests that p shows to be executed. It returns false if a
// READ before p lacks its response; that READ is then retransmitted first.
func (q *qp) catchUp(p *packet) bool {
	r := &q.req
	if p.op == wire.Acknowledge {
		q.skip(p.psn.Add(1))
	} else if q.skip(p.psn); r.psn == p.psn && q.sq.at(r.tx).reads() {
		q.request(q.sq.at(r.tx), &q.out) // counts as sent: p is its response
	}
	if p.psn.Before(r.psn) {
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
	q.retirePlain(una)
	for r.head != r.tx || r.sent > 0 { // parts of a READ at tx may be outstanding
		w := q.sq.at(r.head)
		if w.status != verbs.WCSuccess {
			break
		}
		if w.reads() && !w.done {
			if have := w.psn.Add(int(w.got) / q.mtu); have.Before(una) {
				q.advance(have)
				if !r.probe.on {
					q.missing(have, una)
				}
				return false
			}
			break
		}
		if w.npk > 0 && una.Before(w.psn.Add(int(w.npk))) || w.npk == 0 && !w.done {
			break
		}
		q.endSend(w, verbs.WCSuccess)
	}
	q.advance(una)
	q.endFailed()
	return true
}

// missing handles a response at psn while the response at have is missing, from a peer
// without PeerProbe. It retransmits from have on, once for each stream of responses.
// The PSNs of one stream increase, so its further responses are dropped without a
// retransmission. A PSN that is not after the last one starts another stream, in which
// the response is missing too.
func (q *qp) missing(have, psn verbs.PSN) {
	r := &q.req
	again := !have.Before(r.late) || !r.late.Before(psn)
	if again {
		q.goBack(have)
	}
	r.late = psn
}

// retirePlain completes acknowledged sends and writes before una, from the oldest work
// request on. It stops at the first READ, atomic or local invalidate, and at the first
// work request that failed or is not acknowledged.
func (q *qp) retirePlain(una verbs.PSN) {
	r := &q.req
	for r.head != r.tx {
		w := q.sq.at(r.head)
		if plainOps>>w.op&1 == 0 || w.status != verbs.WCSuccess || una.Before(w.psn.Add(int(w.npk))) {
			return
		}
		if q.sigAll || w.flags&verbs.SendSignaled != 0 {
			q.endSend(w, verbs.WCSuccess)
			continue
		}
		r.head++
		storeRelease32(&q.sq.head, r.head)
	}
}

// advance records that packets before una are acknowledged. It restarts the
// retransmission timer and the retry counts.
func (q *qp) advance(una verbs.PSN) {
	r := &q.req
	if n := una.Diff(r.una); n > 0 {
		if r.probe.alone && r.top != una {
			r.window.lost() // the probe retransmitted a lost packet
		}
		r.window.acked(n)
		r.probe.acked(una, ucs.Time(q.d.now.Load()))
		r.una, r.since, r.met = una, 0, 0
		if r.late.Before(una) {
			r.late = una
		}
		r.retries, r.rnrs = r.retryCnt, r.rnrRetry
	}
}

// endFailed completes a work request that failed locally once all before it are
// completed. It then moves the queue pair to the error state.
func (q *qp) endFailed() {
	r := &q.req
	if r.stuck && r.head != q.sq.end() && q.sq.at(r.head).status != verbs.WCSuccess {
		q.failSend(q.sq.at(r.head).status)
	}
}

// failSend completes the oldest work request with status and moves the queue pair to
// the error state.
func (q *qp) failSend(status verbs.WCStatus) {
	r := &q.req
	if r.head != q.sq.end() {
		q.endSend(q.sq.at(r.head), status)
	}
	q.enterErr()
}

// sendWCOps maps the operation of a work request to the opcode of its completion.
var sendWCOps = [...]verbs.WCOpcode{
	verbs.OpWrite: verbs.WCWrite, verbs.OpWriteImm: verbs.WCWrite, verbs.OpSend: verbs.WCSend, verbs.OpSendImm: verbs.WCSend,
	verbs.OpRead: verbs.WCRead, verbs.OpCompareSwap: verbs.WCCompareSwap, verbs.OpFetchAdd: verbs.WCFetchAdd,
	verbs.OpLocalInv: verbs.WCLocalInv, verbs.OpBindMW: verbs.WCBindMW, verbs.OpSendInv: verbs.WCSend,
}

// endSend completes the oldest work request. It posts a completion if the work request
// is signaled or has failed.
func (q *qp) endSend(w *wqe, status verbs.WCStatus) {
	r := &q.req
	if status != verbs.WCSuccess || w.flags&verbs.SendSignaled != 0 || q.sigAll {
		c := verbs.WC{ID: w.id, Status: status, Op: sendWCOps[w.op&15], Len: w.n, QPN: q.num}
		q.tell(q.sendCQ, &c, false)
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
		q.endSend(q.sq.at(r.head), verbs.WCFlushErr)
	}
	r.tx, r.sent, r.stuck, r.rd = r.head, 0, false, 0
	r.una, r.top, r.late, r.since, r.pause = r.psn, r.psn, r.psn, 0, 0
	r.probe.markAt, r.probe.alone = 0, false
}

// reading returns the READ or atomic operation that a response at psn belongs to. It
// returns nil if that is not the oldest work request. The caller has retired psn.
func (q *qp) reading(psn verbs.PSN) *wqe {
	r := &q.req
	if r.head == r.tx && r.sent == 0 {
		return nil
	}
	w := q.sq.at(r.head)
	if !w.reads() || w.done || psn.Diff(w.psn) < 0 || psn.Diff(w.psn) >= int(w.npk) {
		return nil
	}
	return w
}

// readAnswer places the payload of a READ response packet. It returns false if an
// earlier response is missing.
func (q *qp) readAnswer(p *packet, info *wire.Info) bool {
	if !q.retire(p.psn) {
		q.count(cntOutOfSequence, 1)
		return false
	}
	w := q.reading(p.psn)
	if w == nil || w.op != verbs.OpRead || p.psn != w.psn.Add(int(w.got)/q.mtu) {
		q.failSend(verbs.WCBadRespErr)
		return true
	}
	left := int(w.n - w.got)
	if p.n != min(left, q.mtu) || info.Place.Ends() != q.endsPart(w) {
		q.failSend(verbs.WCBadRespErr)
		return true
	}
	if !q.scatter(q.pd, w.sg[:w.nsg], int(w.got), p, true) {
		q.failSend(verbs.WCLocProtErr)
		return true
	}
	w.got += uint32(p.n)
	q.advance(p.psn.Add(1))
	if info.Place.Ends() {
		q.req.rd--
	}
	if p.n == left {
		w.done = true
		q.retire(p.psn.Add(1))
	}
	return true
}

// atomicAnswer stores the original value that an atomic response carries. It returns
// false if an earlier response is missing.
func (q *qp) atomicAnswer(p *packet) bool {
	if !q.retire(p.psn) {
		return false
	}
	w := q.reading(p.psn)
	if w == nil || w.op == verbs.OpRead {
		q.failSend(verbs.WCBadRespErr)
		return true
	}
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], p.old)
	to, ok := q.d.local(q.pd, w.sg[0], verbs.LocalWrite)
	if !ok {
		q.failSend(verbs.WCLocProtErr)
		return true
	}
	dma(to, b[:])
	w.done = true
	q.req.rd--
	q.retire(p.psn.Add(1))
	return true
}

// notReady handles an RNR NAK. It pauses the requester for the time that the NAK
// demands. It then retransmits from the packet that found no posted receive. It returns
// false if an earlier response is missing.
func (q *qp) notReady(p *packet) bool {
	r := &q.req
	if !q.retire(p.psn) {
		return false
	}
	if r.una != p.psn {
		return true
	}
	if r.rnrRetry != forever {
		if r.rnrs == 0 {
			q.failSend(verbs.WCRNRRetryExcErr)
			return true
		}
		r.rnrs--
	}
	q.goBack(p.psn)
	r.retries = r.retryCnt                           // the peer responds, so only rnrRetry limits the wait
	r.pause = -ucs.Time(wire.RNRTimer(p.syn.Code())) // negative: expireRequests adds the present time
	r.since = 0
	q.d.due(q, 0)
	return true
}

// forever is the RNR retry count that means no limit.
const forever = 7

// refusals maps a fatal NAK code to the status of the work request that it ends.
var refusals = map[wire.Syndrome]verbs.WCStatus{
	wire.NakInvalid:      verbs.WCRemInvReqErr,
	wire.NakRemoteAccess: verbs.WCRemAccessErr,
	wire.NakRemoteOp:     verbs.WCRemOpErr,
	wire.NakInvalidRD:    verbs.WCRemInvRDReqErr,
}

// refused handles a NAK other than RNR.
//
// The NAK may answer a request that goBack scheduled for retransmission; skip then
// moves psn past the requests before it. After a sequence NAK the requester retransmits
// the missing packets (PeerProbe) or everything from the missing packet on. Any other
// NAK is fatal. The responder is then in the error state and sends no further response.
// So a READ before the refused request that lacks its response never completes. Being
// the oldest work request, it gets the status of the NAK.
func (q *qp) refused(p *packet) {
	r := &q.req
	q.count(cntNaks, 1)
	q.skip(p.psn)
	whole := !r.psn.Before(p.psn)
	if whole {
		whole = q.retire(p.psn)
	} else {
		q.retire(r.psn)
	}
	if p.syn == wire.NakSequence {
		switch {
		case r.probe.on && (whole || p.psn.Before(r.psn)):
			q.fillGap(p.psn)
		case whole && r.una == p.psn:
			r.window.lost()
			q.goBack(p.psn)
		}
		return
	}
	if s, ok := refusals[p.syn]; ok {
		q.failSend(s)
	} else {
		q.failSend(verbs.WCBadRespErr)
	}
}

// expire serves the queue pair's expired timers. It returns when to call it again; 0:
// no timer runs.
//
// Concurrency: the caller owns the queue pair.
func (q *qp) expire(now ucs.Time) ucs.Time {
	next := q.expireRequests(now)
	if r := &q.req; r.gapEnds != 0 {
		if now >= r.gapEnds {
			r.gapEnds = 0
			q.requestMissing(len(r.reorder.held))
		} else if next == 0 || r.gapEnds < next {
			next = r.gapEnds
		}
	}
	if s := &q.rsp; s.gap == gapOpen {
		if now >= s.gapEnds {
			q.tellGap()
		} else if next == 0 || s.gapEnds < next {
			next = s.gapEnds
		}
	}
	if s := &q.rsp; s.due && !s.soon {
		if now >= s.dueAt {
			s.soon = true
		} else if next == 0 || s.dueAt < next {
			next = s.dueAt
		}
	}
	return next
}

// expireRequests serves the timers of the requester: RNR pause, retransmission timeout
// and probe.
func (q *qp) expireRequests(now ucs.Time) ucs.Time {
	r := &q.req
	if r.pause < 0 {
		r.pause = now - r.pause
	}
	if r.pause != 0 {
		if now < r.pause {
			return r.pause
		}
		r.pause = 0
	}
	if r.una == r.psn && !q.waitsForRoom() || r.timeout == 0 || q.stateNow() < verbs.StateRTS || q.stateNow() > verbs.StateSQD {
		r.since = 0
		return 0
	}
	if r.since == 0 || r.una == r.psn && q.peerTakes() {
		r.since = now
		r.probe.start(r.top, now)
	}
	if now.Sub(r.since) < r.timeout {
		return min(r.since.Add(r.timeout), q.probeDue(now))
	}
	q.count(cntTimeouts, 1)
	r.since = now
	if r.retries == 0 {
		q.failSend(verbs.WCRetryExcErr)
		return 0
	}
	r.retries--
	r.window.lost()
	r.probe.sent, r.probe.alone = 0, r.probe.on
	q.goBack(r.una)
	return min(now.Add(r.timeout), q.probeDue(now))
}
