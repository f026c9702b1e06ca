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

// earlyRequest is a copy of a request that waits for its predecessors.
type earlyRequest struct {
	packet
	buf []byte
}

// earlyPool has the memory of those that were executed.
var earlyPool = sync.Pool{New: func() any { return new(earlyRequest) }}

// outOfOrder acts on a request that is not the next one.
func (q *qp) outOfOrder(p *packet, now ucs.Time) {
	r := &q.rsp
	if r.gap == gapRNR {
		return
	}
	held := q.req.probe.on && q.hold(p)
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

// tellGap has the peer told which request is missing.
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

// hold puts a copy of p into the reorder buffer; false: it has no room. The buffer
// has no more than a sender's window.
func (q *qp) hold(p *packet) bool {
	r, most := &q.rsp, q.req.window.max
	at, found := slices.BinarySearchFunc(r.early, p.psn, func(e *earlyRequest, psn verbs.PSN) int { return e.psn.Diff(psn) })
	if found {
		return true
	}
	if p.psn.Diff(r.psn) > shortPackets*most || r.earlyBytes+p.n > longPacket*most {
		return false
	}
	e := earlyPool.Get().(*earlyRequest)
	e.packet = *p
	e.buf = slices.Grow(e.buf[:0], p.n)[:p.n]
	n := 0
	for _, b := range p.sg[:p.nsg] {
		n += dma(e.buf[n:], b)
	}
	e.sg, e.nsg = [verbs.MaxSGE][]byte{e.buf}, min(p.nsg, 1)
	r.early = slices.Insert(r.early, at, e)
	r.earlyBytes += p.n
	return true
}

// drainEarly executes what waited for the request that came. asked: it had AckReq.
func (q *qp) drainEarly(asked bool, now ucs.Time) {
	r := &q.rsp
	for len(r.early) > 0 && !r.psn.Before(r.early[0].psn) {
		e := r.early[0]
		r.early = slices.Delete(r.early, 0, 1)
		r.earlyBytes -= e.n
		if e.psn == r.psn {
			asked = asked || e.ackReq
			q.requested(&e.packet, e.op.Info(), now)
		}
		earlyPool.Put(e)
		if r.fatal || r.gap == gapRNR {
			q.dropEarly()
			return
		}
	}
	switch {
	case len(r.early) == 0 || r.gap != noGap:
	case asked:
		q.tellGap()
	default:
		q.openGap(now)
	}
}

// dropEarly empties the reorder buffer.
func (q *qp) dropEarly() {
	r := &q.rsp
	for _, e := range r.early {
		earlyPool.Put(e)
	}
	r.early, r.earlyBytes = nil, 0
}

// fillGap retransmits what a sequence NAK at psn, the oldest packet that is not
// acknowledged, shows to be missing.
func (q *qp) fillGap(psn verbs.PSN) {
	r := &q.req
	f := &r.fill
	if d := f.event.Diff(r.una); d <= 0 || d > r.top.Diff(r.una) {
		r.window.lost()
		f.event = r.top
	}
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
	if !q.resend(psn, min(f.n, r.psn.Diff(psn))) {
		q.goBack(psn)
	}
}

// gapFill is the last retransmission that a sequence NAK asked for.
type gapFill struct {
	from  verbs.PSN
	n     int       // packets; 0: none
	event verbs.PSN // losses before it were answered by a smaller window
}

// resend retransmits n packets from psn on, out of turn; false: one cannot be made.
func (q *qp) resend(psn verbs.PSN, n int) bool {
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
	for end := psn.Add(n); r.psn.Before(end); {
		w := q.sq.at(r.tx)
		if w.npk == 0 {
			r.tx++
			continue
		}
		if !q.request(w, p) {
			return false
		}
		p.more, p.ends, p.hasImm, p.again = 0, false, false, true
		p.ackReq = p.op == wire.ReadRequest || !r.psn.Before(end)
		q.count(cntTxPackets, 1)
		q.count(cntTxBytes, uint64(p.n))
		q.sendOne(&q.to, p)
	}
	return true
}
