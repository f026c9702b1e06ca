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
// buffer. Requests execute in PSN order only. A gap is reported by one NAK, after
// three later arrivals or 20 µs: the missing request may only be late. When a
// request fills a gap that AckReq came with, the next gap is reported at once.
//
// Requester: a sequence NAK makes it retransmit the missing packet alone, out of
// turn; what was sent behind it stays under way. Where the next NAK names the packet
// right behind those, a burst was lost: the number doubles. A probe (probe.go) covers
// lost NAKs and lost retransmissions: a duplicate makes the responder repeat the NAK.
//
// Any other peer goes back to the missing packet, as the specification says: to it
// the NAK goes at once, and requests out of order are dropped.

// gapState is what a responder knows about requests before those that came.
type gapState uint8

const (
	noGap   gapState = iota // the reorder buffer is empty
	gapOpen                 // later requests came; the NAK waits
	gapTold                 // the NAK was sent, or is sent next
	gapRNR                  // no receive: the requester sends all again, so all is dropped
)

const (
	// gapPackets is how many later requests a missing one may let pass.
	gapPackets = 3
	// gapWait is how late it may be.
	gapWait = ucs.Time(20_000)
)

// reorderBuffer holds copies of packets that arrived before their predecessors, in
// order of their PSNs. An empty one has no payload memory: it returns to heldPool.
type reorderBuffer struct {
	held  []*heldPacket
	bytes int // of payload
}

// heldPacket is a copy of a packet with its payload.
type heldPacket struct {
	packet
	buf []byte
}

var heldPool = sync.Pool{New: func() any { return new(heldPacket) }}

// hold copies p into the buffer; next is the PSN that is missing. It returns false
// without room: the buffer holds no more than a window of most packets of 4 KB.
func (b *reorderBuffer) hold(p *packet, next verbs.PSN, most int) bool {
	at, found := b.find(p.psn)
	if found {
		return true
	}
	if p.psn.Diff(next) > shortPackets*most || b.bytes+p.n > longPacket*most {
		return false
	}
	h := heldPool.Get().(*heldPacket)
	h.packet = *p
	h.buf = slices.Grow(h.buf[:0], p.n)[:p.n]
	n := 0
	for _, piece := range p.sg[:p.nsg] {
		n += dma(h.buf[n:], piece)
	}
	h.sg, h.nsg = [verbs.MaxSGE][]byte{h.buf}, min(p.nsg, 1)
	b.held = slices.Insert(b.held, at, h)
	b.bytes += p.n
	return true
}

// find returns the index of the first packet that is not before psn, and whether it
// has that PSN.
func (b *reorderBuffer) find(psn verbs.PSN) (int, bool) {
	return slices.BinarySearchFunc(b.held, psn, func(h *heldPacket, psn verbs.PSN) int { return h.psn.Diff(psn) })
}

// take removes the first packet and returns it. The caller puts it into heldPool.
func (b *reorderBuffer) take() *heldPacket {
	h := b.held[0]
	b.held = slices.Delete(b.held, 0, 1)
	b.bytes -= h.n
	return h
}

// drop empties the buffer.
func (b *reorderBuffer) drop() {
	for _, h := range b.held {
		heldPool.Put(h)
	}
	b.held, b.bytes = nil, 0
}

// outOfOrder acts on a request that is not the next one.
func (q *qp) outOfOrder(p *packet, now ucs.Time) {
	r := &q.rsp
	if r.gap == gapRNR {
		return
	}
	held := q.req.probe.on && r.reorder.hold(p, r.psn, q.req.window.max)
	if r.gap == gapTold {
		return
	}
	r.passed++
	switch {
	case !held || r.passed >= gapPackets:
		q.tellGap()
	case r.gap == noGap:
		q.openGap(now)
	}
}

// openGap starts the wait for a missing request.
func (q *qp) openGap(now ucs.Time) {
	r := &q.rsp
	r.gap, r.gapEnds = gapOpen, now+gapWait
	q.d.due(q, r.gapEnds)
}

// tellGap notifies the peer which request is missing.
func (q *qp) tellGap() {
	r := &q.rsp
	r.gap, r.nak, r.due, r.soon = gapTold, wire.NakSequence, true, true
}

// gapFilled notes that the next request came.
func (r *responder) gapFilled() {
	if r.gap == gapTold && r.nak == wire.NakSequence {
		r.nak = 0 // an acknowledgement goes instead
	}
	r.gap, r.passed = noGap, 0
}

// drainRequests executes what waited for the request that came. asked: it had AckReq.
func (q *qp) drainRequests(asked bool, now ucs.Time) {
	r := &q.rsp
	for len(r.reorder.held) > 0 && !r.psn.Before(r.reorder.held[0].psn) {
		h := r.reorder.take()
		if h.psn == r.psn {
			asked = asked || h.ackReq
			q.requested(&h.packet, h.op.Info(), now)
		}
		heldPool.Put(h)
		if r.fatal || r.gap == gapRNR {
			r.reorder.drop()
			return
		}
	}
	switch {
	case len(r.reorder.held) == 0 || r.gap != noGap:
	case asked:
		q.tellGap()
	default:
		q.openGap(now)
	}
}

// fillGap retransmits what a sequence NAK at psn, the first request that the peer
// lacks, shows to be missing.
func (q *qp) fillGap(psn verbs.PSN) {
	r := &q.req
	f := &r.fill
	q.lossSeen()
	switch {
	case f.n != 0 && psn == f.from:
		return // the NAK came twice
	case f.n != 0 && psn == f.from.Add(f.n):
		f.n *= 2
	default:
		f.n = 1
	}
	f.from = psn
	q.skip(r.top) // where a probe went before: the peer holds what came behind the gap
	if !q.resend(psn, psn.Add(min(f.n, r.psn.Diff(psn))), false) {
		q.goBack(psn)
	}
}

// gapFill is the last retransmission that a sequence NAK asked for.
type gapFill struct {
	from  verbs.PSN
	n     int       // packets; 0: none
	event verbs.PSN // losses before it were answered by a smaller window
}

// lossSeen makes the window smaller, once for all losses of one window.
func (q *qp) lossSeen() {
	r := &q.req
	if d := r.fill.event.Diff(r.una); d <= 0 || d > r.top.Diff(r.una) {
		r.window.lost()
		r.fill.event = r.top
	}
}

// resend retransmits requests from psn to before end, out of turn; it returns false
// when one cannot be made. answers: only READs and atomics, and of READs no more than
// the answers from psn to end. The peer has executed those.
func (q *qp) resend(psn, end verbs.PSN, answers bool) bool {
	r, p := &q.req, &q.out
	tx, sent, next, rd := r.tx, r.sent, r.psn, r.rd
	defer func() { r.tx, r.sent, r.psn, r.rd = tx, sent, next, rd }()
	q.count(cntRetransmits, 1)
	q.looks()
	r.tx = r.head
	for w := q.sq.at(r.tx); psn.Diff(w.psn) >= int(w.npk); w = q.sq.at(r.tx) {
		r.tx++
	}
	r.psn, r.sent = psn, uint32(psn.Diff(q.sq.at(r.tx).psn))
	for r.psn.Before(end) {
		w := q.sq.at(r.tx)
		if w.npk == 0 || answers && !w.reads() {
			r.tx, r.sent, r.psn = r.tx+1, 0, w.psn.Add(int(w.npk))
			continue
		}
		if !q.request(w, p) {
			return false
		}
		if answers && end.Before(r.psn) {
			p.dlen, r.psn = uint32(end.Diff(p.psn)*q.mtu), end
		}
		p.more, p.ends, p.hasImm, p.again = 0, false, false, true
		p.ackReq = p.op == wire.ReadRequest || !r.psn.Before(end)
		q.count(cntTxPackets, 1)
		q.count(cntTxBytes, uint64(p.n))
		q.sendOne(&q.to, p)
	}
	return true
}
