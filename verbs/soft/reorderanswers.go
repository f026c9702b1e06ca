package soft

import (
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// Loss and reordering of responses between soft devices (QPAttr.PeerFeatures).
//
// A READ response, an atomic response or an ACK that arrives before a missing response
// waits in the requester's reorder buffer. The buffer shows which responses are
// missing: those between the last processed one and the buffered ones. Each gap is
// requested once more, after three later arrivals or 20 µs, by a READ request for the
// missing PSNs alone, out of turn. The responder sends only those packets (answerPart).
// The buffered responses are then processed in PSN order. The first probe requests the
// missing responses once more. The next probe goes back to the oldest packet.
//
// With any other peer the requester goes back to the missing response (missing).

// answerMissing buffers p, which arrived before a missing response.
func (q *qp) answerMissing(p *packet, now ucs.Time) {
	r := &q.req
	if !r.probe.on || p.op == wire.Acknowledge && !p.syn.IsAck() {
		return
	}
	if r.reorder.hold(p, r.una, r.window.max) {
		q.findGaps(now)
	}
}

// drainAnswers processes the buffered responses that follow the one just processed.
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

// findGaps requests the missing responses again after which at least gapPackets others
// have arrived. For the other gaps it starts the timer.
func (q *qp) findGaps(now ucs.Time) {
	r := &q.req
	held := r.reorder.held
	q.requestMissing(len(held) - gapPackets + 1)
	if last := held[len(held)-1].psn; r.gapEnds == 0 && r.late.Before(last) {
		r.gapEnds = now + gapWait
		q.d.due(q, r.gapEnds)
	}
}

// requestMissing requests again all responses that are missing before the k-th buffered
// packet and have not been requested again so far.
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
			end = r.psn // the rest has not been sent since goBack: it will be
		}
		if from.Before(end) {
			q.lossSeen()
			q.resend(from, end, true)
		}
		r.late = r.reorder.held[i].psn
	}
}

// answerPart retransmits k packets of the response kept[at], starting with packet n,
// out of turn. Packets that were never sent follow in their turn.
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
			break // the memory was deregistered: answer built a NAK
		}
	}
	a.sent, a.again = sent, again
}
