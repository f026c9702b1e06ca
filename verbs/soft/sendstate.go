package soft

import (
	"math/bits"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// sendState is a snapshot of a queue pair's send state. sendUDP restores it when the socket
// accepts no more packets.
type sendState struct {
	state                verbs.QPState
	tx, sent             uint32
	rdAtomic             int
	psn, sndMax          verbs.PSN
	pendingResponses     uint16
	oldestSent, unacked  uint32
	ack                  verbs.PSN
	failed               bool
	flags                rspFlags
	ackState             ackState
	nak                  wire.Syndrome
	packets, bytes, acks uint64
}

// saveSendState returns a snapshot of the send state.
func (q *qp) saveSendState() sendState {
	r, s, c := &q.req, &q.rsp, &q.counts
	at := sendState{
		state: q.loadState(), tx: r.tx, sent: r.sent, rdAtomic: r.rdAtomic, psn: r.psn, sndMax: r.sndMax, failed: r.failed,
		pendingResponses: s.pendingResponses, ack: s.ack, unacked: s.unacked, ackState: s.ackState, flags: s.flags, nak: s.nak,
		packets: c[cntTxPackets], bytes: c[cntTxBytes], acks: c[cntAcks],
	}
	if s.pendingResponses != 0 {
		at.oldestSent = s.saved[s.oldestPending()].sent
	}
	return at
}

// restoreSendState rewinds the send state to the snapshot, so that packets built since then are
// built again. The first sent packets are excepted: the socket took them, and they are
// built again only to count as sent. If the queue pair changed its state meanwhile,
// restoreSendState does nothing.
//
//go:noinline
func (q *qp) restoreSendState(at *sendState, sent int) {
	if q.loadState() != at.state {
		return
	}
	r, s, c := &q.req, &q.rsp, &q.counts
	r.tx, r.sent, r.rdAtomic, r.psn, r.sndMax, r.failed = at.tx, at.sent, at.rdAtomic, at.psn, at.sndMax, at.failed
	for m := at.pendingResponses; m != 0; m &= m - 1 {
		a := &s.saved[bits.TrailingZeros16(m)]
		a.sent = a.firstSent
	}
	if s.pendingResponses = at.pendingResponses; s.pendingResponses != 0 {
		s.saved[s.oldestPending()].sent = at.oldestSent
	}
	s.ack, s.unacked, s.ackState, s.flags, s.nak = at.ack, at.unacked, at.ackState, at.flags, at.nak
	c.add(cntTxPackets, at.packets-c[cntTxPackets])
	c.add(cntTxBytes, at.bytes-c[cntTxBytes])
	c.add(cntAcks, at.acks-c[cntAcks])
	p := &q.txPacket
	for range sent { // rebuilds the same packets in the same order, to count them as sent
		if !q.nextPacket(p) {
			return
		}
	}
}
