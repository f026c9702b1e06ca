package soft

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// cell is a packet in an inbox, between two devices of this process. It can also carry
// an acknowledgement that precedes the packet. Short payloads are copied into the cell.
// For a long payload the cell holds the sender's scatter/gather list. The receiver
// looks the memory up by its key: if the key is invalid by then, the packet is dropped.
//
// A short send touches only the first 64 bytes. The size is a power of two, so that no
// cell spans more cache lines than it needs.
type cell struct {
	seq      atomic.Uint32
	dest     verbs.QPN
	psn      verbs.PSN
	op       wire.Opcode
	flags    uint8
	nsg      uint8         // entries of sg in use; 0: the payload is in the cell
	syndrome wire.Syndrome // of a response; with cellBatch: how many further packets the cell stands for
	n        uint16        // payload bytes; with cellBatch sg[0] has the length instead
	pkey     uint16
	from     uint32 // index of the sending device
	imm      uint32
	msn      uint32 // with cellAck: the acknowledged PSN
	small    [smallLen]byte

	addr, swapAdd, compare, atomicOld uint64
	rkey, dlen, qkey                  uint32
	src                               verbs.QPN

	long [longLen]byte
	sg   [verbs.MaxSGE]verbs.SGE
	body *body
	_    [8]byte
}

// body is the payload of a datagram or inline message that does not fit the cell. It is a
// copy: a datagram completes as soon as it is sent, and inline data has no key.
type body [4096]byte

var bodies = sync.Pool{New: func() any { return new(body) }}

const (
	smallLen = 32 // fills the first cache line, together with the header
	longLen  = verbs.InlineLen
)

const (
	cellSE = 1 << iota
	cellAckReq
	cellAck       // an acknowledgement precedes the packet
	cellBatch     // the cell stands for more than one packet
	cellBatchEnds // the last of them ends the message
	cellBatchImm  // with immediate data
	cellBody      // the payload is in body
	cellGroup     // a datagram to a multicast group, which addr and swapAdd hold
)

// fill writes p to the cell.
func (c *cell) fill(p *packet, from uint32) {
	c.dest, c.psn, c.op, c.n, c.from, c.pkey = p.DestQP, p.PSN, p.Opcode, uint16(p.n), from, p.PKey
	c.flags, c.nsg = 0, 0
	if p.Solicited {
		c.flags = cellSE
	}
	if p.AckReq {
		c.flags |= cellAckReq
	}
	if p.Opcode.Info().Headers != 0 {
		c.syndrome, c.msn, c.imm = p.Syndrome, p.MSN, p.ImmDt
		c.addr, c.rkey, c.dlen = p.VA, p.RKey, p.DMALen
		c.swapAdd, c.compare, c.atomicOld = p.SwapDt, p.CmpDt, p.OrigRemDt
		c.qkey, c.src = p.QKey, p.SrcQP
	}
	if p.batchMore > 0 {
		c.flags |= cellBatch
		c.syndrome, c.imm = wire.Syndrome(p.batchMore), p.ImmDt
		if p.batchEnds {
			c.flags |= cellBatchEnds
		}
		if p.batchImm {
			c.flags |= cellBatchImm
		}
	}
	switch {
	case p.n == 0:
	case p.n <= smallLen && p.nsg == 1:
		dma(c.small[:], p.sg[0])
	case p.inline && p.n <= longLen:
		dma(c.long[:], p.sg[0])
	case p.inline:
		c.body = bodies.Get().(*body)
		c.flags |= cellBody
		dma(c.body[:], p.sg[0])
	default:
		c.nsg = uint8(p.nsg)
		copy(c.sg[:], p.sge[:p.nsg])
	}
}

// piggyback adds an acknowledgement to the cell of a request. It uses msn, which requests do
// not have.
func (c *cell) piggyback(psn verbs.PSN) {
	c.flags |= cellAck
	c.msn = uint32(psn)
}

// toGroup makes the cell that of a datagram to a multicast group.
func (c *cell) toGroup(g *verbs.GID) {
	c.flags |= cellGroup
	c.addr, c.swapAdd = binary.BigEndian.Uint64(g[:]), binary.BigEndian.Uint64(g[8:])
}

// group returns the multicast group of a cell with cellGroup.
func (c *cell) group() (g verbs.GID) {
	binary.BigEndian.PutUint64(g[:], c.addr)
	binary.BigEndian.PutUint64(g[8:], c.swapAdd)
	return g
}

// read makes the packet in the cell. It returns false if the payload's memory is no
// longer registered.
func (c *cell) read(p *packet, s *Switch) bool {
	p.Opcode, p.DestQP, p.PSN, p.PKey = c.op, c.dest, c.psn, c.pkey
	p.Solicited, p.AckReq, p.n = c.flags&cellSE != 0, c.flags&cellAckReq != 0, int(c.n)
	if c.op.Info().Headers != 0 {
		p.Syndrome, p.MSN, p.ImmDt = c.syndrome, c.msn, c.imm
		p.VA, p.RKey, p.DMALen = c.addr, c.rkey, c.dlen
		p.SwapDt, p.CmpDt, p.OrigRemDt = c.swapAdd, c.compare, c.atomicOld
		p.QKey, p.SrcQP = c.qkey, c.src
	}
	p.nsg, p.batchMore = 1, 0
	if c.flags&cellBatch != 0 {
		p.batchMore, p.ImmDt, p.n = int(c.syndrome), c.imm, int(c.sg[0].Len)
		p.batchEnds, p.batchImm = c.flags&cellBatchEnds != 0, c.flags&cellBatchImm != 0
	}
	switch {
	case c.nsg > 0:
		// Look up the sender's memory.
		d := s.device(c.from)
		if d == nil {
			return false
		}
		p.nsg = int(c.nsg)
		for i := range p.nsg {
			m := d.mrs.find(c.sg[i].LKey)
			if m == nil {
				return false
			}
			if p.sg[i] = m.at(c.sg[i].Addr, int(c.sg[i].Len)); p.sg[i] == nil {
				return false
			}
		}
	case c.flags&cellBody != 0:
		p.sg[0] = c.body[:p.n]
	case p.n <= smallLen:
		p.sg[0] = c.small[:p.n]
	default:
		p.sg[0] = c.long[:p.n]
	}
	return true
}

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
