package soft

import (
	"encoding/binary"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// answered acts on an acknowledgement or an answer. It returns false when the answer of
// a READ or an atomic before p is missing: p has no effect then beyond that answer.
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

// catchUp takes p, which answers a request that is about to go out again: that and what
// lies before need not. Where a READ before p lacks its answer, it returns false: that
// READ goes again first.
func (q *qp) catchUp(p *packet) bool {
	r := &q.req
	if p.op == wire.Acknowledge {
		q.skip(p.psn.Add(1))
	} else if q.skip(p.psn); r.psn == p.psn && q.sq.at(r.tx).reads() {
		q.request(q.sq.at(r.tx), &q.out) // counts as sent: its answer is here
	}
	if p.psn.Before(r.psn) {
		return true
	}
	q.retire(r.psn)
	q.count(cntDuplicates, 1)
	return false
}

// retire takes all packets before una as acknowledged and ends their work
// requests. It returns false when an answer before una is missing. A peer without
// PeerProbe is asked for it again.
func (q *qp) retire(una verbs.PSN) bool {
	r := &q.req
	q.retirePlain(una)
	for r.head != r.tx || r.sent > 0 { // a part of a read may be under way
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

// missing acts on an answer before psn while the one at have is missing. It asks again
// once: what follows of the same stream of answers, whose PSNs increase, is dropped. A
// PSN that is not beyond the last one is of the next stream, in which an answer is
// missing too.
func (q *qp) missing(have, psn verbs.PSN) {
	r := &q.req
	again := !have.Before(r.late) || !r.late.Before(psn)
	if again {
		q.goBack(have)
	}
	r.late = psn
}

// retirePlain ends what is acknowledged up to the first work request that is more
// than data which was sent.
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

// advance notes that packets before una are done with.
func (q *qp) advance(una verbs.PSN) {
	r := &q.req
	if n := una.Diff(r.una); n > 0 {
		if r.probe.alone && r.top != una {
			r.window.lost() // the probe filled a gap
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

// endFailed ends the work request that failed here, when all before it have
// ended, and the queue pair with it.
func (q *qp) endFailed() {
	r := &q.req
	if r.stuck && r.head != q.sq.end() && q.sq.at(r.head).status != verbs.WCSuccess {
		q.failSend(q.sq.at(r.head).status)
	}
}

// failSend ends the oldest work request with status, and the queue pair.
func (q *qp) failSend(status verbs.WCStatus) {
	r := &q.req
	if r.head != q.sq.end() {
		q.endSend(q.sq.at(r.head), status)
	}
	q.enterErr()
}

// sendWCOps are the completions' opcodes.
var sendWCOps = [...]verbs.WCOpcode{
	verbs.OpWrite: verbs.WCWrite, verbs.OpWriteImm: verbs.WCWrite, verbs.OpSend: verbs.WCSend, verbs.OpSendImm: verbs.WCSend,
	verbs.OpRead: verbs.WCRead, verbs.OpCompareSwap: verbs.WCCompareSwap, verbs.OpFetchAdd: verbs.WCFetchAdd,
	verbs.OpLocalInv: verbs.WCLocalInv, verbs.OpBindMW: verbs.WCBindMW, verbs.OpSendInv: verbs.WCSend,
}

// endSend ends the oldest work request.
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

// flushSends ends all work requests that are queued.
func (q *qp) flushSends() {
	r := &q.req
	for r.head != q.sq.end() {
		q.endSend(q.sq.at(r.head), verbs.WCFlushErr)
	}
	r.tx, r.sent, r.stuck, r.rd = r.head, 0, false, 0
	r.una, r.top, r.late, r.since, r.pause = r.psn, r.psn, r.psn, 0, 0
	r.probe.markAt, r.probe.alone = 0, false
}

// reading gives the read or atomic operation whose answer comes next, when all
// before psn has been acknowledged; nil: it is none.
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

// readAnswer places a part of what was read.
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

// atomicAnswer stores what was in the word before.
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

// notReady waits for the receiver, and sends again from the packet on that found
// no receive.
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
	r.retries = r.retryCnt                           // the peer lives; rnrRetry alone counts how long it waits
	r.pause = -ucs.Time(wire.RNRTimer(p.syn.Code())) // begins with the next look at the clock
	r.since = 0
	q.d.due(q, 0)
	return true
}

// forever is the number of retries that never ends.
const forever = 7

// refusals are what a work request ends with that the peer refuses.
var refusals = map[wire.Syndrome]verbs.WCStatus{
	wire.NakInvalid:      verbs.WCRemInvReqErr,
	wire.NakRemoteAccess: verbs.WCRemAccessErr,
	wire.NakRemoteOp:     verbs.WCRemOpErr,
	wire.NakInvalidRD:    verbs.WCRemInvRDReqErr,
}

// refused acts on a negative acknowledgement, which may answer a request that is about
// to go out again. The responder that refuses a request is in the error state and
// answers nothing more. So a READ before the request that lacks its answer never gets
// it, and ends with the refusal.
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

// expire looks at a queue pair's timers, and gives when to look again; 0: none
// runs.
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

// expireRequests is expire for what was sent.
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
