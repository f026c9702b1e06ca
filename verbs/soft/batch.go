package soft

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Segment batches on the in-process link: one cell may represent several consecutive
// packets of one WRITE. Each has its PSN, and is counted and acknowledged as a packet
// of its own. Memory is looked up and copied once for all.

// maxBatchMore is how many further packets a cell can represent.
const maxBatchMore = 255

// coalesce makes p, the packet built last, represent also the packets of the same WRITE
// that may follow it. It stops after the next packet with AckReq.
func (q *qp) coalesce(p *packet) {
	r := &q.req
	p.batchMore, p.batchEnds, p.batchImm = 0, false, false
	if r.sent == 0 || p.AckReq || p.nsg != 1 || p.inline || p.Opcode != wire.WriteFirst && p.Opcode != wire.WriteMiddle {
		return
	}
	w := q.sq.at(r.tx)
	left := firstBatchPackets + r.window.batch - int(r.sent) // in the segment batch
	if r.sent >= firstBatchPackets {
		left = r.window.batch - int(r.sent-firstBatchPackets)%r.window.batch
	}
	k := min(int(w.numPSNs-r.sent), left, r.window.limit(w)-r.psn.Diff(r.una), maxBatchMore)
	if k <= 0 || w.nsg != 1 {
		return
	}
	n := min(w.n-r.sent*uint32(q.mtu), uint32(k*q.mtu))
	ref := p.sge[0]
	ref.Len += n
	if _, ok := q.d.local(q.pd, ref, 0); !ok {
		return
	}
	p.sge[0], p.n, p.batchMore = ref, p.n+int(n), k
	q.count(cntTxPackets, uint64(k))
	q.count(cntTxBytes, uint64(n))
	r.psn = r.psn.Add(k)
	r.sent += uint32(k)
	q.updateSndMax()
	last := r.sent == w.numPSNs
	p.AckReq = q.wantsAckReq(w, last)
	if last {
		p.batchEnds, p.ImmDt, p.Solicited = true, w.imm, w.flags&verbs.SendSolicited != 0 && w.op == verbs.OpWriteImm
		p.batchImm = w.op == verbs.OpWriteImm
		r.tx, r.sent = r.tx+1, 0
	}
}

// handleBatch processes a packet that represents several, as if each had arrived alone.
// The Middle packets between the first and the last are handled as one, unless something
// is unusual.
func (q *qp) handleBatch(p *packet, now ucs.Time) {
	r := &q.rsp
	b, more, ackReq, se := p.sg[0], p.batchMore, p.AckReq, p.Solicited
	for i, k := 0, 0; i <= more; i += k {
		k = 1
		if i > 0 {
			p.Opcode = wire.WriteMiddle
			if n := more - i; n > 1 && n*q.mtu <= len(b) && uint32(n*q.mtu) < r.remaining && p.PSN == r.psn && r.gap == noGap {
				k = n
			}
		}
		if i == more && p.batchEnds {
			p.Opcode = wire.WriteLast
			if p.batchImm {
				p.Opcode = wire.WriteLastImm
			}
		}
		p.AckReq, p.Solicited = ackReq && i == more, se && i == more
		p.batchMore, p.n = k-1, min(len(b), k*q.mtu)
		p.sg[0] = b[:p.n]
		b = b[p.n:]
		q.handlePacket(p, now)
		p.PSN = p.PSN.Add(k)
	}
}
