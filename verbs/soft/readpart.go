package soft

import "github.com/goucx/goucx/verbs/wire"

// A responder sends a READ response without flow control: only the request bounds how
// many packets arrive at once. So the requester splits a long READ into parts. The
// window allows as many outstanding parts as the local socket has room for. Parts end
// at fixed multiples of window.part packets of the READ, also when a retransmission
// starts between two.

// partPackets returns how many packets a part has, except for the last part. It has room
// for two segment batches, the longer first packet with one companion, and the longer
// packet before the last. Two parts are outstanding at a time.
func partPackets(batch, limit int) int {
	return max(1, batch, min(firstBatchPackets+2*batch+1, limit))
}

// nextPart returns how many packets the next part of a READ has.
func (q *qp) nextPart(w *wqe) int {
	at := q.req.psn.Diff(w.psn)
	return min(q.req.window.part-at%q.req.window.part, int(w.numPSNs)-at)
}

// buildReadRequest builds the request for the next part of a READ.
func (q *qp) buildReadRequest(w *wqe, p *packet) {
	r := &q.req
	n := q.nextPart(w)
	off := uint32(r.psn.Diff(w.psn) * q.mtu)
	p.Opcode, p.AckReq = wire.ReadRequest, true
	p.VA, p.RKey, p.DMALen = w.remote+uint64(off), w.rkey, min(w.n-off, uint32(n*q.mtu))
	r.psn = r.psn.Add(n)
	r.rdAtomic++
	if r.sent = uint32(r.psn.Diff(w.psn)); r.sent == w.numPSNs {
		r.tx, r.sent = r.tx+1, 0
	}
}

// endsPart reports whether the next response packet of a READ ends a part.
func (q *qp) endsPart(w *wqe) bool {
	at := int(w.received)/q.mtu + 1
	return at == int(w.numPSNs) || at%q.req.window.part == 0
}
