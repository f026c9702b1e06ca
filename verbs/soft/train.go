package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Segment batches on the in-process link: one cell may represent several consecutive
// packets of one WRITE. Each has its PSN, and is counted and acknowledged as a packet
// of its own. Memory is looked up and copied once for all.

// maxMore is how many further packets a cell can represent.
const maxMore = 255

// extend makes p, the packet built last, represent also the packets of the same WRITE
// that may follow it. It stops after the next packet with AckReq.
func (q *qp) extend(p *packet) {
	r := &q.req
	p.more, p.ends, p.hasImm = 0, false, false
	if r.sent == 0 || p.ackReq || p.nsg != 1 || p.inline || p.op != wire.WriteFirst && p.op != wire.WriteMiddle {
		return
	}
	w := q.sq.at(r.tx)
	k := min(int(w.npk-r.sent), r.window.left(r.sent), r.window.open(w)-r.psn.Diff(r.una), maxMore)
	if k <= 0 || w.nsg != 1 {
		return
	}
	n := min(w.n-r.sent*uint32(q.mtu), uint32(k*q.mtu))
	ref := p.ref[0]
	ref.Len += n
	if _, ok := q.d.local(q.pd, ref, 0); !ok {
		return
	}
	p.ref[0], p.n, p.more = ref, p.n+int(n), k
	q.count(cntTxPackets, uint64(k))
	q.count(cntTxBytes, uint64(n))
	r.psn = r.psn.Add(k)
	r.sent += uint32(k)
	q.reached()
	last := r.sent == w.npk
	p.ackReq = q.asks(w, last)
	if last {
		p.ends, p.imm, p.se = true, w.imm, w.flags&verbs.SendSolicited != 0 && w.op == verbs.OpWriteImm
		p.hasImm = w.op == verbs.OpWriteImm
		r.tx, r.sent = r.tx+1, 0
	}
}

// left returns how many packets of a long message are still to be sent in the current
// batch, after its first n packets.
func (v *window) left(n uint32) int {
	if n < lonePackets {
		return lonePackets + v.train - int(n)
	}
	return v.train - int(n-lonePackets)%v.train
}

// arriveTrain processes a packet that represents several, as if each had arrived alone.
func (q *qp) arriveTrain(p *packet, now ucs.Time) {
	b, more, asked, se := p.sg[0], p.more, p.ackReq, p.se
	for i := 0; i <= more; i++ {
		p.ackReq, p.se = asked && i == more, se && i == more
		p.n, p.sg[0] = min(len(b), q.mtu), b[:min(len(b), q.mtu)]
		if i > 0 {
			p.op, p.psn = wire.WriteMiddle, p.psn.Add(1)
			if k := q.takeMiddles(p, b, more-i); k > 0 {
				i, p.psn, b = i+k-1, p.psn.Add(k-1), b[k*q.mtu:]
				continue
			}
		}
		if i == more && p.ends {
			p.op = wire.WriteLast
			if p.hasImm {
				p.op = wire.WriteLastImm
			}
		}
		b = b[p.n:]
		q.arrive(p, now)
	}
}

// takeMiddles executes k Middle packets of a WRITE at once; b begins with their
// payload. It returns k, or 0 without side effects if they are not the expected ones.
// None of them may have AckReq.
func (q *qp) takeMiddles(p *packet, b []byte, k int) int {
	r := &q.rsp
	n := k * q.mtu
	if k < 1 || n > len(b) || p.psn != r.psn || r.fatal || r.gap != noGap || r.ended.Ends() || r.kind != wire.KindWrite ||
		uint32(n) >= r.left || q.access&verbs.RemoteWrite == 0 || q.stateNow() == verbs.StateErr {
		return 0
	}
	to, ok := q.d.remote(q.pd, r.key, r.addr, n, verbs.RemoteWrite)
	if !ok {
		return 0
	}
	dma(to, b[:n])
	q.count(cntRxPackets, uint64(k))
	q.count(cntRxBytes, uint64(n))
	r.addr += uint64(n)
	r.left -= uint32(n)
	r.off += uint32(n)
	r.psn = r.psn.Add(k)
	r.ack = r.psn.Add(-1)
	r.ended = wire.PlaceMiddle
	return k
}
