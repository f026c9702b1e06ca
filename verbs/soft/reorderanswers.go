package soft

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// Loss and reordering of answers between soft devices (QPAttr.PeerFeatures).
//
// A READ response, an atomic's answer or an ACK that arrives while an answer before it
// is missing waits in the requester's reorder buffer. The buffer shows which answers
// are missing: those between what was retired and what is held. Each gap is requested
// again once, after three later arrivals or 20 µs: a READ request for the missing
// PSNs alone, out of turn. The responder sends those packets and no more (answerPart).
// What was held is then acted on in PSN order. The first probe requests the missing
// answers once more; the next one goes back.
//
// Any other peer is asked again from the missing answer on (missing).

// answerMissing acts on p, which came while an answer before it is missing.
func (q *qp) answerMissing(p *packet, now ucs.Time) {
	r := &q.req
	if !r.probe.on || p.op == wire.Acknowledge && !p.syn.IsAck() {
		return
	}
	if r.reorder.hold(p, r.una, r.window.max) {
		q.findGaps(now)
	}
}

// drainAnswers acts on what waited for the answer that came.
func (q *qp) drainAnswers(now ucs.Time) {
	r := &q.req
	for len(r.reorder.held) > 0 {
		h := r.reorder.take()
		if !h.psn.Before(r.una) && !q.answered(&h.packet) {
			r.reorder.held = slices.Insert(r.reorder.held, 0, h)
			r.reorder.bytes += h.n
			q.findGaps(now)
			return
		}
		heldPool.Put(h)
	}
	r.gapEnds = 0
}

// findGaps requests the answers again that enough later ones have passed. It starts
// the wait for the others.
func (q *qp) findGaps(now ucs.Time) {
	r := &q.req
	held := r.reorder.held
	q.requestMissing(len(held) - gapPackets + 1)
	if last := held[len(held)-1].psn; r.gapEnds == 0 && r.late.Before(last) {
		r.gapEnds = now + gapWait
		q.d.due(q, r.gapEnds)
	}
}

// requestMissing requests all answers again that are missing before the k-th packet
// held, and were not requested again before.
func (q *qp) requestMissing(k int) {
	r := &q.req
	for i, _ := r.reorder.find(r.late); i < k; i++ {
		from, end := r.una, r.reorder.held[i].psn
		if i > 0 {
			from = r.reorder.held[i-1].psn.Add(1)
		}
		if from.Before(r.late) {
			from = r.late
		}
		if r.psn.Before(end) {
			end = r.psn // what follows goes again in any case
		}
		if from.Before(end) {
			q.lossSeen()
			q.resend(from, end, true)
		}
		r.late = r.reorder.held[i].psn
	}
}

// answerPart sends k packets of the answer to kept[at] again, from packet n on, out of
// turn. What has not been sent before comes in its turn.
func (q *qp) answerPart(at, n, k int) {
	a, p := &q.rsp.kept[at], &q.out
	q.looks()
	sent, again := a.sent, a.again
	for a.again = true; k > 0 && n < int(sent); n, k = n+1, k-1 {
		a.sent = uint32(n)
		q.answer(at, p)
		p.more, p.ends, p.hasImm = 0, false, false
		q.sendOne(&q.to, p)
		if a.sent != uint32(n+1) {
			break // the memory is gone: p says so
		}
	}
	a.sent, a.again = sent, again
}
