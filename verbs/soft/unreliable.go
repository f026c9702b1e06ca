package soft

import "github.com/goucx/goucx/ucs"

// Unreliable connections (UC). The requester and the responder of an RC queue pair do the work;
// there are no responses.
//
// Requester: a packet counts as acknowledged once the link has taken it. So the window only
// limits the burst that one pass sends, and a work request completes when it is sent.
//
// Responder: a missing packet drops the message that it belongs to. The receive of that message
// is kept for the next one. The first packet of a message is always the expected one: it
// sets the PSN. What an RC responder refuses with a NAK drops the message, and the queue pair
// goes on; only a fault of its own receive moves it to the error state.
//
// Source: IBTA vol. 1, 9.8.2 and 9.9.3; Linux rxe_resp.c.

// unreliableSent follows a send of the link: everything before psn is sent and completes. What the
// window held back is sent in the next pass.
func (q *qp) unreliableSent() {
	r := &q.req
	sent := r.una != r.psn
	q.retire(r.psn)
	if sent && r.tx != q.sq.end() {
		q.e.markDirty(q)
	}
	q.checkDrained()
}

// handleUnreliable handles a packet of an unreliable connection. p has the opcode of a reliable
// one.
func (q *qp) handleUnreliable(p *packet, now ucs.Time) {
	r := &q.rsp
	info := p.Opcode.Info()
	if info.Place.Begins() {
		if r.flags&rspMidMessage != 0 || p.PSN != r.psn && r.flags&rspFirstPacket == 0 {
			q.count(cntOutOfSequence, 1)
		}
		r.flags &^= rspMidMessage
		r.psn = p.PSN
	} else if r.flags&rspMidMessage == 0 || p.PSN != r.psn || info.Kind != r.kind {
		r.flags &^= rspMidMessage // the rest of the message is dropped too
		q.count(cntOutOfSequence, 1)
		return
	}
	q.handleRequest(p, info, now)
}
