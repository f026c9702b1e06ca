package soft

import (
	"net/netip"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// datagram is one receive: a packet, or a train of packets of equal length of
// which the last may be shorter.
//
// Ownership: whoever holds the receive token has it until the next recv. hold
// keeps it longer, for a packet that waits in an inbox; each hold is ended by one
// release, by any goroutine.
type datagram struct {
	b    []byte // what came
	seg  int    // length of its packets, from minPacket to len(b)
	from udpSource
	pre  wire.Prefix // of packets from that sender
	tos  uint8       // type of service and time to live, where the port asks for them
	ttl  uint8
	u    *udpPort
	refs atomic.Int32 // holds; releases pair with the load in free
	rx   rxMemory
}

// packets is how many packets it has.
func (d *datagram) packets() int {
	if d.seg == len(d.b) {
		return 1 // without the division
	}
	return (len(d.b) + d.seg - 1) / d.seg
}

// packet is packet i of it, from the BTH to the ICRC: any bytes, at least
// minPacket of them, but for the last, which may have fewer.
func (d *datagram) packet(i int) []byte {
	return d.b[i*d.seg : min((i+1)*d.seg, len(d.b))]
}

// open decodes packet i and checks its ICRC, in that order: ok is false where
// only that is wrong. foreign: the sender may be a foreign device.
// hot: BenchmarkUDPPingPong
func (d *datagram) open(i int, p *packet, foreign bool) (f wire.Fault, ok bool) {
	b := d.packet(i)
	if len(b) < minPacket {
		return wire.FaultShort, true
	}
	if f = decode(b[:len(b)-wire.ICRCLen], p); f != wire.FaultNone {
		return f, true
	}
	return f, d.check(i, foreign)
}

// check reports whether the ICRC of packet i is right. Its IPv4 identification
// is i as in a segment batch, 0, or searched for. A foreign sender may use any. From a
// soft device only the index in a batch that was cut on its way is valid: among all
// identifications one of 65536 damaged packets would find a matching one.
// hot: BenchmarkUDPPingPong
func (d *datagram) check(i int, foreign bool) bool {
	id, ok := d.pre.Check(d.packet(i), uint16(i))
	if ok && id != uint16(i) && id != 0 {
		ok = id < maxSegments || foreign
		d.u.counts[udpIDSearched].Add(1)
	}
	return ok
}

func (d *datagram) hold() { d.refs.Add(1) }

func (d *datagram) release() { d.refs.Add(-1) }

// free reports whether nobody holds it.
func (d *datagram) free() bool { return d.refs.Load() == 0 }

// grhLen is the length of the area in front of a datagram's data.
const grhLen = wire.GRHLen

// putGRH fills the area in front of a received datagram's data from what its
// network headers say: for IPv4, 20 bytes of zeros and the header; for IPv6 the
// header. n is the packet's length from the BTH to the ICRC.
//
// Source: IBTA vol. 1, annex A17 (RoCEv2), 17.9.3.
func putGRH(area []byte, src, dst verbs.GID, tos, ttl uint8, n int) {
	h := wire.Network{
		Src: netip.AddrPortFrom(src.Addr(), 0), Dst: netip.AddrPortFrom(dst.Addr(), 0),
		TOS: tos, TTL: ttl,
	}
	wire.GRH(area).Put(&h, n)
}
