package udp

import (
	"bytes"
	"math/rand/v2"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// packet is a packet as a user of a socket has it.
type packet struct {
	wire.Header
	retransmitted bool
	n, nsg        int
	sg            [verbs.MaxSGE][]byte
}

// encode writes p to b, without the ICRC, and returns the length.
func (p *packet) encode(b []byte) int {
	p.PadCnt = uint8(wire.Pad(p.n))
	n := p.Put(b)
	for _, s := range p.sg[:p.nsg] {
		n += copy(b[n:], s)
	}
	clear(b[n : n+int(p.PadCnt)])
	return n + int(p.PadCnt)
}

func (t *Batch) add(p *packet) bool {
	n := p.Opcode.Info().PacketLen(p.n)
	b := t.Reserve(n)
	if b == nil {
		return false
	}
	if p.n <= CopyLimit || p.retransmitted {
		p.encode(b)
		t.Seal(n)
	} else {
		p.PadCnt = uint8(wire.Pad(p.n))
		t.SealByRef(n, p.Put(b), p.sg[:p.nsg], int(p.PadCnt))
	}
	return true
}

func (d *Datagram) decode(i int, p *packet, c ICRCCheck) (wire.Fault, bool) {
	b := d.Packet(i)
	if len(b) < MinPacket {
		return wire.FaultShort, true
	}
	payload, f := p.Parse(b[:len(b)-wire.ICRCLen])
	p.n, p.nsg, p.sg[0] = len(payload), 1, payload
	return f, f != wire.FaultNone || d.Check(i, c)
}

// allOpcodes are those of the table.
func allOpcodes() (ops []wire.Opcode) {
	for o := range 256 {
		if op := wire.Opcode(o); op.Info().Kind != wire.KindNone {
			ops = append(ops, op)
		}
	}
	return ops
}

// randomPacket has n bytes of payload in up to four pieces, and every field that
// its opcode carries.
func randomPacket(r *rand.Rand, op wire.Opcode, n int) *packet {
	p := &packet{n: n, Header: wire.Header{
		Opcode: op, Solicited: r.IntN(2) == 0, AckReq: r.IntN(2) == 0, PKey: uint16(r.Uint32()),
		DestQP: verbs.QPN(r.Uint32() >> 8), PSN: verbs.PSN(r.Uint32() >> 8),
	}}
	has := op.Info().Headers
	if has&wire.HasAETH != 0 {
		p.Syndrome, p.MSN = wire.Syndrome(r.Uint32()), r.Uint32()>>8
	}
	if has&(wire.HasImm|wire.HasIETH) != 0 {
		p.ImmDt = r.Uint32()
	}
	if has&(wire.HasRETH|wire.HasAtomicETH) != 0 {
		p.VA, p.RKey = r.Uint64(), r.Uint32()
	}
	if has&wire.HasRETH != 0 {
		p.DMALen = r.Uint32()
	}
	if has&wire.HasAtomicETH != 0 {
		p.SwapDt, p.CmpDt = r.Uint64(), r.Uint64()
	}
	if has&wire.HasAtomicAckETH != 0 {
		p.OrigRemDt = r.Uint64()
	}
	if has&wire.HasDETH != 0 {
		p.QKey, p.SrcQP = r.Uint32(), verbs.QPN(r.Uint32()>>8)
	}
	p.PadCnt = uint8(wire.Pad(n))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for p.nsg = 0; p.nsg < verbs.MaxSGE-1 && len(data) > 0; p.nsg++ {
		k := r.IntN(len(data) + 1)
		p.sg[p.nsg], data = data[:k], data[k:]
	}
	p.sg[p.nsg] = data
	p.nsg++
	return p
}

// flat is p with its payload in one piece of its own.
func flat(p *packet) packet {
	q := *p
	q.nsg, q.sg = 1, [verbs.MaxSGE][]byte{bytes.Join(p.sg[:p.nsg], nil)}
	return q
}

// payloadOf draws a length that the opcode may carry.
func payloadOf(r *rand.Rand, op wire.Opcode) int {
	if !op.Info().Payload {
		return 0
	}
	return r.IntN(600)
}
