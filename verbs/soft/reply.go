package soft

import (
	"math/bits"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// answer is a READ or atomic request of the peer, kept so that its response can be
// retransmitted.
type answer struct {
	psn    verbs.PSN
	npk    uint32
	sent   uint32 // response packets sent
	from   uint32 // first packet of the transmission in progress
	read   bool
	again  bool // requested more than once
	given  bool // sent completely at least once
	key, n uint32
	addr   uint64
	old    uint64
	msn    uint32
}

// again processes a duplicate request. A SEND or WRITE is acknowledged again. Of a READ
// or atomic the response is sent again, without executing it.
func (q *qp) again(p *packet, info *wire.Info) {
	r := &q.rsp
	if info.Kind != wire.KindReadRequest && info.Kind != wire.KindAtomic {
		q.ackAgain(p.psn)
		return
	}
	for i := r.keptN - min(r.keptN, r.max); i != r.keptN; i++ {
		a := &r.kept[i%maxDestRd]
		d := p.psn.Diff(a.psn)
		if d < 0 || d >= int(a.npk) || a.read != (info.Kind == wire.KindReadRequest) || a.key != p.rkey {
			continue
		}
		if left := a.n - uint32(d*q.mtu); a.read && (p.addr != a.addr+uint64(d)*uint64(q.mtu) || p.dlen != left) {
			if q.req.probe.on && p.addr == a.addr+uint64(d)*uint64(q.mtu) && p.dlen < left {
				q.answerPart(int(i%maxDestRd), d, int(p.dlen)/q.mtu)
			}
			return
		}
		a.again = true
		if uint32(d) < a.sent {
			a.sent, a.from = uint32(d), uint32(d)
		}
		r.asked |= 1 << (i % maxDestRd)
		return
	}
}

// ackAgain acknowledges a duplicate SEND or WRITE. The ACK has the PSN of the last
// request, unless a READ or atomic was executed after the duplicate. The peer may lack
// that response and would take an ACK beyond it for the response. So the ACK has the
// duplicate's PSN then.
func (q *qp) ackAgain(psn verbs.PSN) {
	r := &q.rsp
	last := r.psn.Add(-1)
	if r.keptN > 0 {
		if a := &r.kept[(r.keptN-1)%maxDestRd]; !a.psn.Before(psn) {
			last = psn
		}
	}
	if !r.due || r.ack.Before(last) {
		r.ack = last
	}
	r.due, r.soon = true, true
}

// oldest returns the index in kept of the oldest request whose response is to be sent.
func (r *responder) oldest() int {
	next := int(r.keptN % maxDestRd) // index of the oldest entry
	return (next + bits.TrailingZeros16(bits.RotateLeft16(r.asked, -next))) % maxDestRd
}

// nextReply builds the next response or ACK packet. It returns false if there is none.
func (q *qp) nextReply(p *packet) bool { return q.nextAnswer(p) || q.nextAck(p) }

// nextAnswer builds the next READ or atomic response packet. It returns false if all
// have been sent.
func (q *qp) nextAnswer(p *packet) bool {
	r := &q.rsp
	if r.asked == 0 {
		return false
	}
	q.answer(r.oldest(), p)
	return true
}

// nextAck builds the pending ACK or NAK. It returns false if none is due, or responses
// must be sent first.
func (q *qp) nextAck(p *packet) bool {
	r := &q.rsp
	if !r.soon || r.asked != 0 {
		return false
	}
	q.head(p, wire.Acknowledge, q.acknowledged())
	p.syn, p.msn = wire.AckNoCredits, r.msn
	if r.nak != 0 {
		p.syn, p.psn = r.nak, r.psn
		r.nak = 0
	}
	return true
}

// lastWord sends the pending ACK before the program closes or resets the queue pair: a
// delayed ACK would never be sent afterwards. The owner calls it.
func (q *qp) lastWord() {
	r, s := &q.rsp, q.stateNow()
	if q.typ != verbs.RC || !r.due || s < verbs.StateRTR || s == verbs.StateErr {
		return
	}
	r.soon = true
	if p := &q.out; q.nextAck(p) {
		q.sendOne(&q.to, p)
	}
}

// mayRide reports whether the pending ACK can be piggybacked on a request: it is a
// plain ACK and no response must be sent first.
func (r *responder) mayRide() bool {
	return r.due && (r.soon || r.run >= ackPackets/2 || r.stood >= ackAnswered/2) && r.nak == 0 && r.asked == 0
}

// acknowledged returns the PSN of an ACK that is sent now, alone or piggybacked, and
// resets the ACK state.
func (q *qp) acknowledged() verbs.PSN {
	r := &q.rsp
	r.due, r.soon, r.stood, r.run = false, false, 0, 0
	q.count(cntAcks, 1)
	q.count(cntTxPackets, 1)
	return r.ack
}

// head initializes a packet to the peer.
func (q *qp) head(p *packet, op wire.Opcode, psn verbs.PSN) {
	p.op, p.dest, p.psn, p.pkey = op, q.dest, psn, q.pkey
	p.se, p.ackReq, p.n, p.nsg = false, false, 0, 0
}

// answer builds the next packet of the response kept[at].
func (q *qp) answer(at int, p *packet) {
	r := &q.rsp
	a := &r.kept[at]
	q.count(cntTxPackets, 1)
	if !a.read {
		q.head(p, wire.AtomicAcknowledge, a.psn)
		p.syn, p.msn, p.old = wire.AckNoCredits, a.msn, a.old
		q.answerSent(at)
		return
	}
	off := a.sent * uint32(q.mtu)
	n := min(a.n-off, uint32(q.mtu))
	first, last := a.sent == 0, off+n == a.n
	op := wire.ReadResponseMiddle
	switch {
	case first && last:
		op = wire.ReadResponseOnly
	case first:
		op = wire.ReadResponseFirst
	case last:
		op = wire.ReadResponseLast
	}
	q.head(p, op, a.psn.Add(int(a.sent)))
	p.syn, p.msn = wire.AckNoCredits, a.msn
	if n > 0 {
		b, ok := q.d.remote(q.pd, a.key, a.addr+uint64(off), int(n), verbs.RemoteRead)
		if !ok { // the memory was deregistered meanwhile
			q.head(p, wire.Acknowledge, a.psn.Add(int(a.sent)))
			p.syn = wire.NakRemoteAccess
			if a.given { // a duplicate request is not fatal: a requester that has the response ignores the NAK
				a.sent = a.npk
				r.asked &^= 1 << at
				return
			}
			r.asked, r.fatal, r.due, r.soon = 0, true, false, false
			return
		}
		p.sg[0], p.nsg, p.n, p.inline, p.again = b, 1, int(n), false, a.again
		p.ref[0] = verbs.SGE{Addr: a.addr + uint64(off), Len: n, LKey: a.key}
	}
	q.count(cntTxBytes, uint64(n))
	a.sent++
	if last {
		q.answerSent(at)
	}
}

// answerSent records that the response kept[at] was sent completely. The response
// acknowledges all requests before it.
func (q *qp) answerSent(at int) {
	r := &q.rsp
	a := &r.kept[at]
	a.sent, a.given = a.npk, true
	r.asked &^= 1 << at
	if r.asked == 0 && r.nak == 0 && a.psn.Add(int(a.npk)) == r.psn {
		r.due, r.soon, r.stood, r.run = false, false, 0, 0
	}
}
