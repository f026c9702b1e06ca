package soft

import (
	"math/bits"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// savedRequest is a READ or atomic request of the peer, kept so that its response can be
// retransmitted.
type savedRequest struct {
	psn           verbs.PSN
	npk           uint32
	sent          uint32 // response packets sent
	firstSent     uint32 // first packet of the transmission in progress
	read          bool
	retransmitted bool // requested more than once
	completed     bool // sent completely at least once
	key, n        uint32
	addr          uint64
	atomicOld     uint64
	msn           uint32
}

// handleDuplicate processes a duplicate request.
//
// A SEND or WRITE is acknowledged again. The ACK has the PSN of the last request, unless
// a READ or atomic was executed after the duplicate. The peer may lack that response and
// would take an ACK beyond it for the response. So the ACK has the duplicate's PSN then.
//
// Of a READ or atomic the saved response is sent again, without executing the request.
// A duplicate that names another range than the saved request is dropped. A soft peer
// may ask for some packets of a response alone; they are sent out of turn.
func (q *qp) handleDuplicate(p *packet, info *wire.Info) {
	r := &q.rsp
	if info.Kind != wire.KindReadRequest && info.Kind != wire.KindAtomic {
		last := r.psn.Add(-1)
		if r.numSaved > 0 {
			if a := &r.saved[(r.numSaved-1)%maxDestRdAtomic]; !a.psn.Before(p.PSN) {
				last = p.PSN
			}
		}
		if r.ackState == ackNone || r.ack.Before(last) {
			r.ack = last
		}
		r.ackState = ackDue
		return
	}
	for i := r.numSaved - min(r.numSaved, r.maxSaved); i != r.numSaved; i++ {
		a := &r.saved[i%maxDestRdAtomic]
		d := p.PSN.Diff(a.psn)
		if d < 0 || d >= int(a.npk) || a.read != (info.Kind == wire.KindReadRequest) || a.key != p.RKey {
			continue
		}
		if remaining := a.n - uint32(d*q.mtu); a.read && (p.VA != a.addr+uint64(d)*uint64(q.mtu) || p.DMALen != remaining) {
			if q.req.probe.enabled && p.VA == a.addr+uint64(d)*uint64(q.mtu) && p.DMALen < remaining {
				q.retransmitResponse(int(i%maxDestRdAtomic), d, int(p.DMALen)/q.mtu)
			}
			return
		}
		a.retransmitted = true
		if uint32(d) < a.sent {
			a.sent, a.firstSent = uint32(d), uint32(d)
		}
		r.pendingResponses |= 1 << (i % maxDestRdAtomic)
		return
	}
}

// oldestPending returns the index in kept of the oldest request whose response is to be sent.
func (r *responder) oldestPending() int {
	next := int(r.numSaved % maxDestRdAtomic) // index of the oldest entry
	return (next + bits.TrailingZeros16(bits.RotateLeft16(r.pendingResponses, -next))) % maxDestRdAtomic
}

// nextResponse builds the next READ or atomic response packet. It returns false if all
// have been sent.
func (q *qp) nextResponse(p *packet) bool {
	r := &q.rsp
	if r.pendingResponses == 0 {
		return false
	}
	q.buildResponse(r.oldestPending(), p)
	return true
}

// nextAck builds the pending ACK or NAK. It returns false if none is due, or responses
// must be sent first.
func (q *qp) nextAck(p *packet) bool {
	r := &q.rsp
	if r.ackState != ackDue || r.pendingResponses != 0 {
		return false
	}
	q.initPacket(p, wire.Acknowledge, q.takeAck())
	p.Syndrome, p.MSN = wire.AckNoCredits, r.msn
	if r.nak != 0 {
		p.Syndrome, p.PSN = r.nak, r.psn
		r.nak = 0
	}
	return true
}

// sendFinalAck sends the pending ACK before the program closes or resets the queue pair: a
// delayed ACK would never be sent afterwards. The owner calls it.
func (q *qp) sendFinalAck() {
	r, s := &q.rsp, q.loadState()
	if q.typ != verbs.RC || r.ackState == ackNone || s < verbs.StateRTR || s == verbs.StateErr {
		return
	}
	r.ackState = ackDue
	if p := &q.txPacket; q.nextAck(p) {
		q.sendOne(&q.route, p)
	}
}

// canPiggyback reports whether the pending ACK can be piggybacked on a request: it is a
// plain ACK and no response must be sent first.
func (r *responder) canPiggyback() bool {
	return r.ackState != ackNone && (r.ackState == ackDue || r.unackedRun >= ackPackets/2 || r.unacked >= ackPacketsImplied/2) && r.nak == 0 && r.pendingResponses == 0
}

// takeAck returns the PSN of an ACK that is sent now, alone or piggybacked, and
// resets the ACK state.
func (q *qp) takeAck() verbs.PSN {
	r := &q.rsp
	r.ackState, r.unacked, r.unackedRun = ackNone, 0, 0
	q.count(cntAcks, 1)
	q.count(cntTxPackets, 1)
	return r.ack
}

// initPacket initializes a packet to the peer.
func (q *qp) initPacket(p *packet, op wire.Opcode, psn verbs.PSN) {
	p.Opcode, p.DestQP, p.PSN, p.PKey = op, q.dest, psn, q.pkey
	p.Solicited, p.AckReq, p.n, p.nsg = false, false, 0, 0
}

// buildResponse builds the next packet of the response saved[at]. The last packet of a
// response acknowledges all requests before it.
func (q *qp) buildResponse(at int, p *packet) {
	r := &q.rsp
	a := &r.saved[at]
	q.count(cntTxPackets, 1)
	last := true
	if a.read {
		off := a.sent * uint32(q.mtu)
		n := min(a.n-off, uint32(q.mtu))
		first := a.sent == 0
		last = off+n == a.n
		op := wire.ReadResponseMiddle
		switch {
		case first && last:
			op = wire.ReadResponseOnly
		case first:
			op = wire.ReadResponseFirst
		case last:
			op = wire.ReadResponseLast
		}
		q.initPacket(p, op, a.psn.Add(int(a.sent)))
		p.Syndrome, p.MSN = wire.AckNoCredits, a.msn
		if n > 0 {
			b, ok := q.remote(a.key, a.addr+uint64(off), int(n), verbs.RemoteRead)
			if !ok { // the memory was deregistered meanwhile
				q.initPacket(p, wire.Acknowledge, a.psn.Add(int(a.sent)))
				p.Syndrome = wire.NakRemoteAccess
				if a.completed { // a duplicate request is not fatal: a requester that has the response ignores the NAK
					a.sent = a.npk
					r.pendingResponses &^= 1 << at
					return
				}
				r.pendingResponses, r.ackState = 0, ackNone
				r.flags |= rspRefused
				return
			}
			p.sg[0], p.nsg, p.n, p.inline, p.retransmitted = b, 1, int(n), false, a.retransmitted
			p.sge[0] = verbs.SGE{Addr: a.addr + uint64(off), Len: n, LKey: a.key}
		}
		q.count(cntTxBytes, uint64(n))
		a.sent++
	} else {
		q.initPacket(p, wire.AtomicAcknowledge, a.psn)
		p.Syndrome, p.MSN, p.OrigRemDt = wire.AckNoCredits, a.msn, a.atomicOld
	}
	if !last {
		return
	}
	a.sent, a.completed = a.npk, true
	r.pendingResponses &^= 1 << at
	if r.pendingResponses == 0 && r.nak == 0 && a.psn.Add(int(a.npk)) == r.psn {
		r.ackState, r.unacked, r.unackedRun = ackNone, 0, 0
	}
}
