package soft

import (
	"net/netip"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// datagram is one received UDP payload: a packet, or a segment batch of packets of
// equal length, of which the last may be shorter.
//
// Ownership: the holder of the receive token owns it until the next recv. hold extends
// this for a packet that waits for its queue pair. Each hold needs one release, by any
// goroutine.
type datagram struct {
	b      []byte // the payload
	seg    int    // length of its packets, from minPacket to len(b)
	from   udpSource
	prefix wire.Prefix // of packets from that sender
	tos    uint8       // type of service and time to live, if the port receives them
	ttl    uint8
	u      *udpPort
	refs   atomic.Int32 // holds; releases pair with the load in free
	rx     rxBuffer
}

// packets returns the number of packets.
func (d *datagram) packets() int {
	if d.seg == len(d.b) {
		return 1 // avoids the division
	}
	return (len(d.b) + d.seg - 1) / d.seg
}

// packet returns packet i, from the BTH to the ICRC. Its content is not checked. Only
// the last packet may be shorter than minPacket.
func (d *datagram) packet(i int) []byte {
	return d.b[i*d.seg : min((i+1)*d.seg, len(d.b))]
}

// decode decodes packet i and then checks its ICRC; ok is false if only the ICRC is
// wrong. foreign is set if the sender may be a foreign device.
//
//hot:bench BenchmarkUDPPingPong
func (d *datagram) decode(i int, p *packet, foreign bool) (f wire.Fault, ok bool) {
	b := d.packet(i)
	if len(b) < minPacket {
		return wire.FaultShort, true
	}
	if f = p.decode(b[:len(b)-wire.ICRCLen]); f != wire.FaultNone {
		return f, true
	}
	return f, d.check(i, foreign)
}

// check reports whether the ICRC of packet i is right. The checksum covers the IPv4
// identification, which the socket does not show. It is i in a segment batch, 0, or
// found by a search. A foreign sender may use any value. From a soft device only the
// index in a batch that was segmented on its way is accepted. If every value were, one
// of 65536 damaged packets would pass.
//
//hot:bench BenchmarkUDPPingPong
func (d *datagram) check(i int, foreign bool) bool {
	id, ok := d.prefix.Check(d.packet(i), uint16(i))
	if ok && id != uint16(i) && id != 0 {
		ok = id < maxSegments || foreign
		d.u.counts[udpIDSearched].Add(1)
	}
	return ok
}

func (d *datagram) hold() { d.refs.Add(1) }

func (d *datagram) release() { d.refs.Add(-1) }

// unheld reports whether there is no hold.
func (d *datagram) unheld() bool { return d.refs.Load() == 0 }

// grhLen is the length of the GRH area in front of a datagram's data.
const grhLen = wire.GRHLen

// putGRH writes the GRH area of a received datagram from its network headers. For IPv4
// it is 20 zero bytes and the IPv4 header, for IPv6 the IPv6 header. n is the packet's
// length from the BTH to the ICRC.
//
// Source: IBTA vol. 1, annex A17 (RoCEv2), 17.9.3.
func putGRH(area []byte, src, dst verbs.GID, tos, ttl uint8, n int) {
	h := wire.Network{
		Src: netip.AddrPortFrom(src.Addr(), 0), Dst: netip.AddrPortFrom(dst.Addr(), 0),
		TOS: tos, TTL: ttl,
	}
	wire.GRH(area).Put(&h, n)
}
