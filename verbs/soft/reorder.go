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
	noGap   gapState = iota // no gap
	gapOpen                 // later requests arrived; the NAK is delayed
	gapTold                 // the NAK was sent, or is sent next
	gapRNR                  // an RNR NAK is due: the requester retransmits everything, so later requests are dropped
)

const (
	// gapPackets is how many later requests may arrive before a gap is reported.
	gapPackets = 3
	// gapWait is how long the report of a gap is delayed.
	gapWait = ucs.Time(20_000)
)

// reorderBuffer holds copies of packets that arrived before their predecessors, in PSN
// order. An empty buffer holds no payload memory: it is returned to heldPool.
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

// hold copies p into the buffer; next is the missing PSN. It returns false if the
// buffer is full: it holds no more than a window of most packets of 4 KB.
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

// find returns the index of the first packet that is not before psn, and whether its
// PSN is psn.
func (b *reorderBuffer) find(psn verbs.PSN) (int, bool) {
	return slices.BinarySearchFunc(b.held, psn, func(h *heldPacket, psn verbs.PSN) int { return h.psn.Diff(psn) })
}

// take removes the first packet and returns it. The caller returns it to heldPool.
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

// outOfOrder processes a request whose PSN is after the expected one.
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

// openGap delays the report of a missing request by gapWait.
func (q *qp) openGap(now ucs.Time) {
	r := &q.rsp
	r.gap, r.gapEnds = gapOpen, now+gapWait
	q.d.due(q, r.gapEnds)
}

// tellGap schedules a sequence NAK, which names the missing request.
func (q *qp) tellGap() {
	r := &q.rsp
	r.gap, r.nak, r.due, r.soon = gapTold, wire.NakSequence, true, true
}

// gapFilled records that the expected request arrived.
func (r *responder) gapFilled() {
	if r.gap == gapTold && r.nak == wire.NakSequence {
		r.nak = 0 // an ACK replaces it
	}
	r.gap, r.passed = noGap, 0
}

// drainRequests executes the buffered requests that follow the one just executed, up to
// the next gap. asked is set if that request had AckReq.
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

// fillGap processes a sequence NAK between soft devices: psn is the first request that
// the peer lacks. It retransmits that packet, or twice as many as before if those were
// followed by another loss.
func (q *qp) fillGap(psn verbs.PSN) {
	r := &q.req
	f := &r.fill
	q.lossSeen()
	switch {
	case f.n != 0 && psn == f.from:
		return // a duplicate of the NAK
	case f.n != 0 && psn == f.from.Add(f.n):
		f.n *= 2
	default:
		f.n = 1
	}
	f.from = psn
	q.skip(r.top) // after a probe: the peer already holds what follows the gap
	if !q.resend(psn, psn.Add(min(f.n, r.psn.Diff(psn))), false) {
		q.goBack(psn)
	}
}

// gapFill is the last retransmission that a sequence NAK caused.
type gapFill struct {
	from  verbs.PSN
	n     int       // packets; 0: no such retransmission
	event verbs.PSN // losses before this PSN have already reduced the window
}

// lossSeen reduces the window, at most once for all losses of one window.
func (q *qp) lossSeen() {
	r := &q.req
	if d := r.fill.event.Diff(r.una); d <= 0 || d > r.top.Diff(r.una) {
		r.window.lost()
		r.fill.event = r.top
	}
}

// resend retransmits the requests from psn up to before end, out of turn. It returns
// false if one of them cannot be built. The send position is unchanged afterwards. With
// answers set it sends only READs and atomics, and requests only the response packets
// from psn to end. The peer has executed those requests.
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
