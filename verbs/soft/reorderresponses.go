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
// missing PSNs alone, out of turn. The responder sends only those packets (retransmitResponse).
// The buffered responses are then processed in PSN order. The first probe requests the
// missing responses once more. The next probe goes back to the oldest packet.
//
// With any other peer the requester goes back to the missing response (missing).

// bufferResponse buffers p, which arrived before a missing response.
func (q *qp) bufferResponse(p *packet, now ucs.Time) {
	r := &q.req
	if !r.probe.enabled || p.Opcode == wire.Acknowledge && !p.Syndrome.IsAck() {
		return
	}
	if r.reorder.insert(p, r.una, r.window.max) {
		q.findGaps(now)
	}
}

// drainResponses processes the buffered responses that follow the one just processed.
func (q *qp) drainResponses(now ucs.Time) {
	r := &q.req
	for len(r.reorder.packets) > 0 {
		h := r.reorder.popFirst()
		if !h.PSN.Before(r.una) && !q.handleResponse(&h.packet) {
			r.reorder.packets = slices.Insert(r.reorder.packets, 0, h)
			r.reorder.bytes += h.n
			q.findGaps(now)
			return
		}
		bufferedPool.Put(h)
	}
	r.gapDeadline = 0
}

// findGaps requests the missing responses again after which at least gapPackets others
// have arrived. For the other gaps it starts the timer.
func (q *qp) findGaps(now ucs.Time) {
	r := &q.req
	held := r.reorder.packets
	q.requestMissing(len(held) - gapPackets + 1)
	if last := held[len(held)-1].PSN; r.gapDeadline == 0 && r.rerequested.Before(last) {
		r.gapDeadline = now + gapWait
		q.d.setTimer(q, r.gapDeadline)
	}
}

// requestMissing requests again all responses that are missing before the k-th buffered
// packet and have not been requested again so far.
func (q *qp) requestMissing(k int) {
	r := &q.req
	for i, _ := r.reorder.find(r.rerequested); i < k; i++ {
		from, end := r.una, r.reorder.packets[i].PSN
		if i > 0 {
			from = r.reorder.packets[i-1].PSN.Add(1)
		}
		if from.Before(r.rerequested) {
			from = r.rerequested
		}
		if r.psn.Before(end) {
			end = r.psn // the rest has not been sent since goBack: it will be
		}
		if from.Before(end) {
			q.reduceWindow()
			q.retransmit(from, end, true)
		}
		r.rerequested = r.reorder.packets[i].PSN
	}
}

// retransmitResponse retransmits k packets of the response kept[at], starting with packet n,
// out of turn. Packets that were never sent follow in their turn.
func (q *qp) retransmitResponse(at, n, k int) {
	a, p := &q.rsp.saved[at], &q.txPacket
	q.markMemoryUser()
	sent, again := a.sent, a.retransmitted
	for a.retransmitted = true; k > 0 && n < int(sent); n, k = n+1, k-1 {
		a.sent = uint32(n)
		q.buildResponse(at, p)
		p.batchMore, p.batchEnds, p.batchImm = 0, false, false
		q.sendOne(&q.route, p)
		if a.sent != uint32(n+1) {
			break // the memory was deregistered: answer built a NAK
		}
	}
	a.sent, a.retransmitted = sent, again
}
