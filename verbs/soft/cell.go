package soft

import (
	"sync"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// cell is a packet on its way between two devices of this process, and with it
// perhaps an acknowledgement that came before. Short payloads travel in it; of
// long ones it names the memory, which the receiver looks up by its key, so that
// memory that was taken away meanwhile is a lost packet.
//
// The first 64 bytes are all that a short send touches. The size is a power of
// two, so that no cell lies across a cache line more than it needs.
type cell struct {
	seq   atomic.Uint32
	dest  verbs.QPN
	psn   verbs.PSN
	op    wire.Opcode
	flags uint8
	nsg   uint8         // pieces; 0: the payload is in the cell
	syn   wire.Syndrome // of an answer; of a write: how many packets more the cell stands for
	n     uint16        // of a train: sg[0] has the length
	pkey  uint16
	from  uint32 // the device
	imm   uint32
	msn   uint32 // with cellAck the number that is acknowledged
	small [smallLen]byte

	addr, swapAdd, compare, old uint64
	rkey, dlen, qkey            uint32
	src                         verbs.QPN

	long [longLen]byte
	sg   [verbs.MaxSGE]verbs.SGE
	body *body
	_    [8]byte
}

// body is the payload of a datagram that is too long for the cell: its sender may
// have its memory back when it was sent.
type body [4096]byte

var bodies = sync.Pool{New: func() any { return new(body) }}

const (
	smallLen = 32 // with the header one cache line
	longLen  = verbs.InlineLen
)

const (
	cellSE = 1 << iota
	cellAckReq
	cellAck   // an acknowledgement comes before the packet
	cellTrain // the packet stands for more than one
	cellEnds  // the last of them ends the message
	cellImm   // with immediate data
	cellBody  // the payload is in the body
)

// fill writes p into the cell.
func (c *cell) fill(p *packet, from uint32) {
	c.dest, c.psn, c.op, c.n, c.from, c.pkey = p.dest, p.psn, p.op, uint16(p.n), from, p.pkey
	c.flags, c.nsg = 0, 0
	if p.se {
		c.flags = cellSE
	}
	if p.ackReq {
		c.flags |= cellAckReq
	}
	if p.op.Info().Headers != 0 {
		c.fillHeaders(p)
	}
	if p.more > 0 {
		c.train(p)
	}
	switch {
	case p.n == 0:
	case p.n <= smallLen && p.nsg == 1:
		dma(c.small[:], p.sg[0])
	case p.inline:
		dma(c.long[:], p.sg[0])
	default:
		c.nsg = uint8(p.nsg)
		copy(c.sg[:], p.ref[:p.nsg])
	}
}

func (c *cell) fillHeaders(p *packet) {
	c.syn, c.msn, c.imm = p.syn, p.msn, p.imm
	c.addr, c.rkey, c.dlen = p.addr, p.rkey, p.dlen
	c.swapAdd, c.compare, c.old = p.swapAdd, p.compare, p.old
	c.qkey, c.src = p.qkey, p.src
}

// own copies the payload of a filled cell, if it names memory.
func (c *cell) own(p *packet) {
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

// drop gives the body back.
func (c *cell) drop() {
	bodies.Put(c.body)
	c.body = nil
}

// train notes what a packet says that stands for more than one.
func (c *cell) train(p *packet) {
	c.flags |= cellTrain
	c.syn, c.imm = wire.Syndrome(p.more), p.imm
	if p.ends {
		c.flags |= cellEnds
	}
	if p.hasImm {
		c.flags |= cellImm
	}
}

// ride puts an acknowledgement into the cell of a request, which has no number of
// messages of its own.
func (c *cell) ride(psn verbs.PSN) {
	c.flags |= cellAck
	c.msn = uint32(psn)
}

// ridden makes the packet of the acknowledgement that came with the cell.
func (c *cell) ridden(p *packet) {
	p.op, p.dest, p.psn, p.pkey = wire.Acknowledge, c.dest, verbs.PSN(c.msn), c.pkey
	p.syn, p.se, p.ackReq, p.n, p.nsg = wire.AckNoCredits, false, false, 0, 0
}

// read makes the packet in the cell; false: its payload is gone.
func (c *cell) read(p *packet, s *Switch) bool {
	p.op, p.dest, p.psn, p.pkey = c.op, c.dest, c.psn, c.pkey
	p.se, p.ackReq, p.n = c.flags&cellSE != 0, c.flags&cellAckReq != 0, int(c.n)
	if c.op.Info().Headers != 0 {
		p.syn, p.msn, p.imm = c.syn, c.msn, c.imm
		p.addr, p.rkey, p.dlen = c.addr, c.rkey, c.dlen
		p.swapAdd, p.compare, p.old = c.swapAdd, c.compare, c.old
		p.qkey, p.src = c.qkey, c.src
	}
	p.nsg, p.more = 1, 0
	if c.flags&cellTrain != 0 {
		p.more, p.imm, p.n = int(c.syn), c.imm, int(c.sg[0].Len)
		p.ends, p.hasImm = c.flags&cellEnds != 0, c.flags&cellImm != 0
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

// resolve finds the sender's memory.
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
