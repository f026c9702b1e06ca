package soft

import (
	"slices"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Loss and reordering of requests between soft devices (QPAttr.PeerFeatures).
//
// Responder: a request that arrives before its predecessors waits in the reorder
// buffer. Requests execute in PSN order only. A gap is reported by one NAK, after three
// later requests or 20 µs, because the missing request may only be late. When a request
// fills a gap and one of the executed requests had AckReq, the next gap is reported at
// once.
//
// Requester: after a sequence NAK it retransmits the missing packet alone, out of turn.
// The packets sent after it stay outstanding. If the next NAK names the packet right
// after the retransmitted ones, a burst was lost: the number doubles. A probe
// (probe.go) covers lost NAKs and lost retransmissions, because a duplicate makes the
// responder repeat the NAK.
//
// With any other peer the requester goes back to the missing packet, as the
// specification requires. The responder then sends the NAK at once and drops requests
// that are out of order.

// gapState is the responder's state about missing requests.
type gapState uint8

const (
	noGap       gapState = iota // no gap
	gapOpen                     // later requests arrived; the NAK is delayed
	gapReported                 // the NAK was sent, or is sent next
	gapRNR                      // an RNR NAK is due: the requester retransmits everything, so later requests are dropped
)

const (
	// gapPackets is how many later requests may arrive before a gap is reported.
	gapPackets = 3
	// gapWait is how long the report of a gap is delayed.
	gapWait = ucs.Time(20_000)
)

// reorderBuffer holds copies of packets that arrived before their predecessors, in PSN
// order. An empty buffer holds no payload memory: it is returned to bufferedPool.
type reorderBuffer struct {
	packets []*bufferedPacket
	bytes   int // of payload
}

// bufferedPacket is a copy of a packet with its payload.
type bufferedPacket struct {
	packet
	buf []byte
}

var bufferedPool = sync.Pool{New: func() any { return new(bufferedPacket) }}

// insert copies p into the buffer; next is the missing PSN. It returns false if the
// buffer is full: it holds no more than a window of most packets of 4 KB.
func (b *reorderBuffer) insert(p *packet, next verbs.PSN, most int) bool {
	at, found := b.find(p.PSN)
	if found {
		return true
	}
	if p.PSN.Diff(next) > shortPackets*most || b.bytes+p.n > longPacket*most {
		return false
	}
	h := bufferedPool.Get().(*bufferedPacket)
	h.packet = *p
	h.buf = slices.Grow(h.buf[:0], p.n)[:p.n]
	n := 0
	for _, piece := range p.sg[:p.nsg] {
		n += dma(h.buf[n:], piece)
	}
	h.sg, h.nsg = [verbs.MaxSGE][]byte{h.buf}, min(p.nsg, 1)
	b.packets = slices.Insert(b.packets, at, h)
	b.bytes += p.n
	return true
}

// find returns the index of the first packet that is not before psn, and whether its
// PSN is psn.
func (b *reorderBuffer) find(psn verbs.PSN) (int, bool) {
	return slices.BinarySearchFunc(b.packets, psn, func(h *bufferedPacket, psn verbs.PSN) int { return h.PSN.Diff(psn) })
}

// popFirst removes the first packet and returns it. The caller returns it to bufferedPool.
func (b *reorderBuffer) popFirst() *bufferedPacket {
	h := b.packets[0]
	b.packets = slices.Delete(b.packets, 0, 1)
	b.bytes -= h.n
	return h
}

// reset empties the buffer.
func (b *reorderBuffer) reset() {
	for _, h := range b.packets {
		bufferedPool.Put(h)
	}
	b.packets, b.bytes = nil, 0
}

// openGap delays the report of a missing request by gapWait.
func (q *qp) openGap(now ucs.Time) {
	r := &q.rsp
	r.gap, r.gapDeadline = gapOpen, now+gapWait
	q.e.setTimer(q, r.gapDeadline)
}

// reportGap schedules a sequence NAK, which names the missing request.
func (q *qp) reportGap() {
	r := &q.rsp
	r.gap, r.nak, r.ackState = gapReported, wire.NakSequence, ackDue
}

// drainRequests executes the buffered requests that follow the one just executed, up to
// the next gap. ackReq is set if that request had AckReq.
func (q *qp) drainRequests(ackReq bool, now ucs.Time) {
	r := &q.rsp
	for len(r.reorder.packets) > 0 && !r.psn.Before(r.reorder.packets[0].PSN) {
		h := r.reorder.popFirst()
		if h.PSN == r.psn {
			ackReq = ackReq || h.AckReq
			q.handleRequest(&h.packet, h.Opcode.Info(), now)
		}
		bufferedPool.Put(h)
		if r.flags&rspRefused != 0 || r.gap == gapRNR {
			r.reorder.reset()
			return
		}
	}
	switch {
	case len(r.reorder.packets) == 0 || r.gap != noGap:
	case ackReq:
		q.reportGap()
	default:
		q.openGap(now)
	}
}

// fillGap processes a sequence NAK between soft devices: psn is the first request that
// the peer lacks. It retransmits that packet, or twice as many as before if those were
// followed by another loss.
func (q *qp) fillGap(psn verbs.PSN) {
	r := &q.req
	f := &r.fill
	q.reduceWindow()
	switch {
	case f.n != 0 && psn == f.from:
		return // a duplicate of the NAK
	case f.n != 0 && psn == f.from.Add(f.n):
		f.n *= 2
	default:
		f.n = 1
	}
	f.from = psn
	q.skipTo(r.sndMax) // after a probe: the peer already holds what follows the gap
	if !q.retransmit(psn, psn.Add(min(f.n, r.psn.Diff(psn))), false) {
		q.goBack(psn)
	}
}

// gapFill is the last retransmission that a sequence NAK caused.
type gapFill struct {
	from      verbs.PSN
	n         int       // packets; 0: no such retransmission
	reducedAt verbs.PSN // losses before this PSN have already reduced the window
}

// reduceWindow reduces the window, at most once for all losses of one window.
func (q *qp) reduceWindow() {
	r := &q.req
	if d := r.fill.reducedAt.Diff(r.una); d <= 0 || d > r.sndMax.Diff(r.una) {
		r.window.halve()
		r.fill.reducedAt = r.sndMax
	}
}

// retransmit retransmits the requests from psn up to before end, out of turn. It returns
// false if one of them cannot be built. The send position is unchanged afterwards. With
// responses set it sends only READs and atomics, and requests only the response packets
// from psn to end. The peer has executed those requests.
func (q *qp) retransmit(psn, end verbs.PSN, responses bool) bool {
	r, p := &q.req, &q.txPacket
	tx, sent, next, rd := r.tx, r.sent, r.psn, r.rdAtomic
	defer func() { r.tx, r.sent, r.psn, r.rdAtomic = tx, sent, next, rd }()
	q.count(cntRetransmits, 1)
	q.markMemoryUser()
	r.tx = r.head
	for w := q.sq.at(r.tx); psn.Diff(w.psn) >= int(w.numPSNs); w = q.sq.at(r.tx) {
		r.tx++
	}
	r.psn, r.sent = psn, uint32(psn.Diff(q.sq.at(r.tx).psn))
	for r.psn.Before(end) {
		w := q.sq.at(r.tx)
		if w.numPSNs == 0 || responses && !w.isReadOrAtomic() {
			r.tx, r.sent, r.psn = r.tx+1, 0, w.psn.Add(int(w.numPSNs))
			continue
		}
		if !q.buildRequest(w, p) {
			return false
		}
		if responses && end.Before(r.psn) {
			p.DMALen, r.psn = uint32(end.Diff(p.PSN)*q.mtu), end
		}
		p.batchMore, p.batchEnds, p.batchImm, p.retransmitted = 0, false, false, true
		p.AckReq = p.Opcode == wire.ReadRequest || !r.psn.Before(end)
		q.count(cntTxPackets, 1)
		q.count(cntTxBytes, uint64(p.n))
		q.sendOne(&q.route, p)
	}
	return true
}

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
// With any other peer the requester goes back to the missing response (retire).

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
		q.e.setTimer(q, r.gapDeadline)
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
