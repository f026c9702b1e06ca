package soft

import (
	"math/bits"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// place is how far sending has come, to go back to where the socket takes nothing
// now.
type place struct {
	state                   verbs.QPState
	tx, sent                uint32
	rd                      int
	psn, top                verbs.PSN
	asked                   uint16
	replied, stood          uint32
	ack                     verbs.PSN
	stuck, due, soon, fatal bool
	nak                     wire.Syndrome
	packets, bytes, acks    uint64
}

// here is where the sending is.
func (q *qp) here() place {
	r, s, c := &q.req, &q.rsp, &q.counts
	at := place{
		state: q.stateNow(), tx: r.tx, sent: r.sent, rd: r.rd, psn: r.psn, top: r.top, stuck: r.stuck,
		asked: s.asked, ack: s.ack, stood: s.stood, due: s.due, soon: s.soon, fatal: s.fatal, nak: s.nak,
		packets: c[cntTxPackets], bytes: c[cntTxBytes], acks: c[cntAcks],
	}
	if s.asked != 0 {
		at.replied = s.kept[s.oldest()].sent
	}
	return at
}

// backTo has what was made since then made again, but for the first sent packets,
// which went. Where the queue pair failed meanwhile, there is nothing to go back to.
//
//go:noinline
func (q *qp) backTo(at *place, sent int) {
	if q.stateNow() != at.state {
		return
	}
	r, s, c := &q.req, &q.rsp, &q.counts
	r.tx, r.sent, r.rd, r.psn, r.top, r.stuck = at.tx, at.sent, at.rd, at.psn, at.top, at.stuck
	for m := at.asked; m != 0; m &= m - 1 {
		a := &s.kept[bits.TrailingZeros16(m)]
		a.sent = a.from
	}
	if s.asked = at.asked; s.asked != 0 {
		s.kept[s.oldest()].sent = at.replied
	}
	s.ack, s.stood, s.due, s.soon, s.fatal, s.nak = at.ack, at.stood, at.due, at.soon, at.fatal, at.nak
	c.add(cntTxPackets, at.packets-c[cntTxPackets])
	c.add(cntTxBytes, at.bytes-c[cntTxBytes])
	c.add(cntAcks, at.acks-c[cntAcks])
	p := &q.out
	for range sent { // the same packets in the same order, to count them as sent
		if !q.nextPacket(p) {
			return
		}
	}
}
