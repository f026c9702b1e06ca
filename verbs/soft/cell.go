package soft

import (
	"sync"
	"sync/atomic"

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

// body is the payload of a datagram that does not fit the cell. It is a copy, because a
// datagram completes as soon as it is sent.
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
		c.fillHeaders(p)
	}
	if p.batchMore > 0 {
		c.setBatch(p)
	}
	switch {
	case p.n == 0:
	case p.n <= smallLen && p.nsg == 1:
		dma(c.small[:], p.sg[0])
	case p.inline:
		dma(c.long[:], p.sg[0])
	default:
		c.nsg = uint8(p.nsg)
		copy(c.sg[:], p.sge[:p.nsg])
	}
}

func (c *cell) fillHeaders(p *packet) {
	c.syndrome, c.msn, c.imm = p.Syndrome, p.MSN, p.ImmDt
	c.addr, c.rkey, c.dlen = p.VA, p.RKey, p.DMALen
	c.swapAdd, c.compare, c.atomicOld = p.SwapDt, p.CmpDt, p.OrigRemDt
	c.qkey, c.src = p.QKey, p.SrcQP
}

// copyPayload replaces the scatter/gather list of a filled cell by a copy of the payload.
func (c *cell) copyPayload(p *packet) {
	if c.nsg == 0 {
		return
	}
	c.body = bodies.Get().(*body)
	for i, n := 0, 0; i < p.nsg; i++ {
		n += dma(c.body[n:], p.sg[i])
	}
	c.nsg = 0
	c.flags |= cellBody
}

// freeBody returns body to its pool.
func (c *cell) freeBody() {
	bodies.Put(c.body)
	c.body = nil
}

// setBatch writes the fields of a packet that stands for more than one.
func (c *cell) setBatch(p *packet) {
	c.flags |= cellBatch
	c.syndrome, c.imm = wire.Syndrome(p.batchMore), p.ImmDt
	if p.batchEnds {
		c.flags |= cellBatchEnds
	}
	if p.batchImm {
		c.flags |= cellBatchImm
	}
}

// piggyback adds an acknowledgement to the cell of a request. It uses msn, which requests do
// not have.
func (c *cell) piggyback(psn verbs.PSN) {
	c.flags |= cellAck
	c.msn = uint32(psn)
}

// piggybackedAck makes the packet of the acknowledgement in the cell.
func (c *cell) piggybackedAck(p *packet) {
	p.Opcode, p.DestQP, p.PSN, p.PKey = wire.Acknowledge, c.dest, verbs.PSN(c.msn), c.pkey
	p.Syndrome, p.Solicited, p.AckReq, p.n, p.nsg = wire.AckNoCredits, false, false, 0, 0
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
		return c.resolve(p, s)
	case c.flags&cellBody != 0:
		p.sg[0] = c.body[:p.n]
	case p.n <= smallLen:
		p.sg[0] = c.small[:p.n]
	default:
		p.sg[0] = c.long[:p.n]
	}
	return true
}

// resolve looks up the sender's memory.
func (c *cell) resolve(p *packet, s *Switch) bool {
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
	return true
}
