package soft

import (
	"math/bits"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// place is a snapshot of a queue pair's send state. sendUDP restores it when the socket
// accepts no more packets.
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

// here returns a snapshot of the send state.
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

// backTo rewinds the send state to the snapshot, so that packets built since then are
// built again. The first sent packets are excepted: the socket took them, and they are
// built again only to count as sent. If the queue pair changed its state meanwhile,
// backTo does nothing.
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
	for range sent { // rebuilds the same packets in the same order, to count them as sent
		if !q.nextPacket(p) {
			return
		}
	}
}
