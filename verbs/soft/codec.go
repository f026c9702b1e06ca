package soft

import (
	"encoding/binary"

	"github.com/goucx/goucx/verbs/wire"
)

// Encoded packets hold what the ICRC covers, from the BTH to the padding. The link adds
// the ICRC.

// maxHeaders is the room in bytes that putHeaders needs.
const maxHeaders = wire.BTHLen + wire.AtomicETHLen

// encode writes p to b, which has room for it, and returns the length.
func encode(p *packet, b []byte) int {
	n := putHeaders(p, b)
	for _, s := range p.sg[:p.nsg] {
		n += dma(b[n:], s)
	}
	return n + putPad(p.n, b[n:])
}

// putPad writes the padding of a payload of n bytes and returns its length.
func putPad(n int, b []byte) int {
	pad := wire.Pad(n)
	clear(b[:pad])
	return pad
}

// putHeaders writes the BTH and the headers of p's opcode, and returns their length.
//
//hot:bench BenchmarkCodec
func putHeaders(p *packet, b []byte) int {
	_ = b[maxHeaders-1]
	wire.BTH(b).Put(&wire.BTHFields{
		Opcode: p.op, Solicited: p.solicited, AckReq: p.ackReq, Pad: uint8(wire.Pad(p.n)),
		PKey: p.pkey, Dest: p.dest, PSN: p.psn,
	})
	info := p.op.Info()
	switch info.Headers {
	case 0:
	case wire.HasAETH:
		wire.AETH(b[wire.BTHLen:]).Put(p.syndrome, p.msn)
	case wire.HasRETH:
		wire.RETH(b[wire.BTHLen:]).Put(p.addr, p.rkey, p.dlen)
	default:
		putMixed(p, info.Headers, b[wire.BTHLen:])
	}
	return int(info.Len)
}

// putMixed writes any set of headers, in the order of the bits of wire.Headers.
func putMixed(p *packet, has wire.Headers, b []byte) {
	if has&wire.HasDETH != 0 {
		wire.DETH(b).Put(p.qkey, p.srcQP)
		b = b[wire.DETHLen:]
	}
	if has&wire.HasRETH != 0 {
		wire.RETH(b).Put(p.addr, p.rkey, p.dlen)
		b = b[wire.RETHLen:]
	}
	if has&wire.HasAtomicETH != 0 {
		wire.AtomicETH(b).Put(p.addr, p.rkey, p.swapAdd, p.compare)
		b = b[wire.AtomicETHLen:]
	}
	if has&wire.HasAETH != 0 {
		wire.AETH(b).Put(p.syndrome, p.msn)
		b = b[wire.AETHLen:]
	}
	if has&wire.HasAtomicAckETH != 0 {
		wire.AtomicAckETH(b).Put(p.atomicOld)
		b = b[wire.AtomicAckETHLen:]
	}
	if has&(wire.HasImm|wire.HasIETH) != 0 {
		binary.BigEndian.PutUint32(b, p.imm)
	}
}

// decode fills p from b, which may hold any bytes. p's payload is a slice of b. If the
// returned fault is not FaultNone, p is undefined.
//
//hot:bench BenchmarkCodec
func decode(b []byte, p *packet) wire.Fault {
	if len(b) < wire.BTHLen {
		return wire.FaultShort
	}
	h := wire.BTH(b)
	info := h.Opcode().Info()
	rest, pad := len(b)-int(info.Len), h.Pad()
	switch {
	case info.Kind == wire.KindNone:
		return wire.FaultOpcode
	case h.Version() != 0:
		return wire.FaultVersion
	case rest < pad:
		return wire.FaultShort
	case rest&3 != 0:
		return wire.FaultPad
	case rest > 0 && !info.Payload:
		return wire.FaultPayload
	}
	p.op, p.solicited, p.ackReq = h.Opcode(), h.Solicited(), h.AckReq()
	p.pkey, p.dest, p.psn = h.PKey(), h.Dest(), h.PSN()
	switch info.Headers {
	case 0:
	case wire.HasAETH:
		a := wire.AETH(b[wire.BTHLen:])
		p.syndrome, p.msn = a.Syndrome(), a.MSN()
	case wire.HasRETH:
		r := wire.RETH(b[wire.BTHLen:])
		p.addr, p.rkey, p.dlen = r.Addr(), r.RKey(), r.Len()
	default:
		decodeMixed(b[wire.BTHLen:info.Len], info.Headers, p)
	}
	p.n, p.nsg = rest-pad, 1
	p.sg[0] = b[info.Len : len(b)-pad]
	return wire.FaultNone
}

// decodeMixed reads any set of headers; b holds exactly them.
func decodeMixed(b []byte, has wire.Headers, p *packet) {
	if has&wire.HasDETH != 0 {
		d := wire.DETH(b)
		p.qkey, p.srcQP = d.QKey(), d.Src()
		b = b[wire.DETHLen:]
	}
	if has&wire.HasRETH != 0 {
		r := wire.RETH(b)
		p.addr, p.rkey, p.dlen = r.Addr(), r.RKey(), r.Len()
		b = b[wire.RETHLen:]
	}
	if has&wire.HasAtomicETH != 0 {
		a := wire.AtomicETH(b)
		p.addr, p.rkey, p.swapAdd, p.compare = a.Addr(), a.RKey(), a.SwapAdd(), a.Compare()
		b = b[wire.AtomicETHLen:]
	}
	if has&wire.HasAETH != 0 {
		a := wire.AETH(b)
		p.syndrome, p.msn = a.Syndrome(), a.MSN()
		b = b[wire.AETHLen:]
	}
	if has&wire.HasAtomicAckETH != 0 {
		p.atomicOld = wire.AtomicAckETH(b).Old()
		b = b[wire.AtomicAckETHLen:]
	}
	if has&(wire.HasImm|wire.HasIETH) != 0 {
		p.imm = binary.BigEndian.Uint32(b)
	}
}
