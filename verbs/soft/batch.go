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
	k := min(int(w.numPSNs-r.sent), r.window.leftInBatch(r.sent), r.window.limit(w)-r.psn.Diff(r.una), maxBatchMore)
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

// leftInBatch returns how many packets of a long message are still to be sent in the current
// batch, after its first n packets.
func (v *window) leftInBatch(n uint32) int {
	if n < firstBatchPackets {
		return firstBatchPackets + v.batch - int(n)
	}
	return v.batch - int(n-firstBatchPackets)%v.batch
}

// handleBatch processes a packet that represents several, as if each had arrived alone.
func (q *qp) handleBatch(p *packet, now ucs.Time) {
	b, more, ackReq, se := p.sg[0], p.batchMore, p.AckReq, p.Solicited
	for i := 0; i <= more; i++ {
		p.AckReq, p.Solicited = ackReq && i == more, se && i == more
		p.n, p.sg[0] = min(len(b), q.mtu), b[:min(len(b), q.mtu)]
		if i > 0 {
			p.Opcode, p.PSN = wire.WriteMiddle, p.PSN.Add(1)
			if k := q.executeMiddles(p, b, more-i); k > 0 {
				i, p.PSN, b = i+k-1, p.PSN.Add(k-1), b[k*q.mtu:]
				continue
			}
		}
		if i == more && p.batchEnds {
			p.Opcode = wire.WriteLast
			if p.batchImm {
				p.Opcode = wire.WriteLastImm
			}
		}
		b = b[p.n:]
		q.handlePacket(p, now)
	}
}

// executeMiddles executes k Middle packets of a WRITE at once; b begins with their
// payload. It returns k, or 0 without side effects if they are not the expected ones.
// None of them may have AckReq.
func (q *qp) executeMiddles(p *packet, b []byte, k int) int {
	r := &q.rsp
	n := k * q.mtu
	if k < 1 || n > len(b) || p.PSN != r.psn || r.fatal || r.gap != noGap || r.lastPlace.Ends() || r.kind != wire.KindWrite ||
		uint32(n) >= r.remaining || q.access&verbs.RemoteWrite == 0 || q.loadState() == verbs.StateErr {
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
	r.remaining -= uint32(n)
	r.received += uint32(n)
	r.psn = r.psn.Add(k)
	r.ack = r.psn.Add(-1)
	r.lastPlace = wire.PlaceMiddle
	return k
}
