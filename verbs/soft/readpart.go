package soft

import "github.com/goucx/goucx/verbs/wire"

// A responder answers a read as fast as it can: nothing but the request bounds
// what comes at once. So a long read is asked for in parts, of which the window
// lets so many be under way as the own socket holds answers of. Parts end at each
// so many'th packet of the read, wherever asking begins again after a loss.

// partLen is how many packets a part has, but for the last: two trains, behind the
// first packet, which is longer and has one more with it, and before the last,
// which is longer too. Two parts are under way at a time.
func partLen(train, limit int) int {
	return max(1, train, min(lonePackets+2*train+1, limit))
}

// nextPart is how many packets the next part of a read has.
func (q *qp) nextPart(w *wqe) int {
	at := q.req.psn.Diff(w.psn)
	return min(q.req.window.part-at%q.req.window.part, int(w.npk)-at)
}

// requestRead asks for the next part of a read.
func (q *qp) requestRead(w *wqe, p *packet) {
	r := &q.req
	n := q.nextPart(w)
	off := uint32(r.psn.Diff(w.psn) * q.mtu)
	p.op, p.ackReq = wire.ReadRequest, true
	p.addr, p.rkey, p.dlen = w.remote+uint64(off), w.rkey, min(w.n-off, uint32(n*q.mtu))
	r.psn = r.psn.Add(n)
	r.rd++
	if r.sent = uint32(r.psn.Diff(w.psn)); r.sent == w.npk {
		r.tx, r.sent = r.tx+1, 0
	}
}

// endsPart reports whether a part ends with the next packet of a read's answer.
func (q *qp) endsPart(w *wqe) bool {
	at := int(w.got)/q.mtu + 1
	return at == int(w.npk) || at%q.req.window.part == 0
}
