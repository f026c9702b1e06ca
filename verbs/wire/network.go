package wire

import (
	"encoding/binary"
	"net/netip"
)

// Lengths of the headers below the BTH in bytes.
const (
	IPv4Len = 20
	IPv6Len = 40
	UDPLen  = 8
)

// Port is the UDP port of RoCEv2.
const Port = 4791

const (
	protoUDP = 17
	flowMask = 1<<20 - 1
)

// Offsets in an IPv4, an IPv6 and a UDP header.
const (
	ip4TOS, ip4Total, ip4ID, ip4Flags, ip4TTL, ip4Proto, ip4Sum, ip4Src, ip4Dst = 1, 2, 4, 6, 8, 9, 10, 12, 16
	ip6Payload, ip6Next, ip6Hop, ip6Src, ip6Dst                                 = 4, 6, 7, 8, 24
	udpDst, udpLength, udpSum                                                   = 2, 4, 6
)

// Network holds the fields of the headers below the BTH. A UDP socket does not show
// these headers, so they are rebuilt for captures and GRH areas.
type Network struct {
	Src, Dst netip.AddrPort // IPv4 may be mapped into IPv6
	TOS      uint8          // type of service, or IPv6's traffic class
	TTL      uint8          // or hop limit
	ID       uint16         // of IPv4

	FlowLabel uint32 // of IPv6, 20 bits
}

// IPv4 reports whether both addresses are IPv4. If only one is, it appears mapped in an
// IPv6 header.
func (h *Network) IPv4() bool { return h.Src.Addr().Unmap().Is4() && h.Dst.Addr().Unmap().Is4() }

// AppendIP appends the IP header of a packet with n bytes after it. An IPv4 header
// forbids fragmentation and has a valid checksum.
func (h *Network) AppendIP(b []byte, n int) []byte {
	be := binary.BigEndian
	if h.IPv4() {
		s, d := h.Src.Addr().Unmap().As4(), h.Dst.Addr().Unmap().As4()
		var ip [IPv4Len]byte
		ip[0] = 0x45
		ip[ip4TOS] = h.TOS
		be.PutUint16(ip[ip4Total:], uint16(IPv4Len+n))
		be.PutUint16(ip[ip4ID:], h.ID)
		ip[ip4Flags] = 0x40
		ip[ip4TTL] = h.TTL
		ip[ip4Proto] = protoUDP
		copy(ip[ip4Src:], s[:])
		copy(ip[ip4Dst:], d[:])
		be.PutUint16(ip[ip4Sum:], ^onesSum(0, ip[:]))
		return append(b, ip[:]...)
	}
	s, d := h.Src.Addr().As16(), h.Dst.Addr().As16()
	var ip [IPv6Len]byte
	be.PutUint32(ip[:], 6<<28|uint32(h.TOS)<<20|h.FlowLabel&flowMask)
	be.PutUint16(ip[ip6Payload:], uint16(n))
	ip[ip6Next] = protoUDP
	ip[ip6Hop] = h.TTL
	copy(ip[ip6Src:], s[:])
	copy(ip[ip6Dst:], d[:])
	return append(b, ip[:]...)
}

// AppendUDP appends the UDP header of a packet with n bytes after it. The checksum is 0
// (none), as hardware sends it; sealUDP computes it.
func (h *Network) AppendUDP(b []byte, n int) []byte {
	be := binary.BigEndian
	b = be.AppendUint16(b, h.Src.Port())
	b = be.AppendUint16(b, h.Dst.Port())
	b = be.AppendUint16(b, uint16(UDPLen+n))
	return append(b, 0, 0)
}

// sealUDP stores the UDP checksum in a packet that begins with the IP header. The
// checksum field must be 0 before.
func (h *Network) sealUDP(b []byte) {
	udp, addresses := b[IPv6Len:], b[ip6Src:IPv6Len]
	if h.IPv4() {
		udp, addresses = b[IPv4Len:], b[ip4Src:IPv4Len]
	}
	sum := onesSum(protoUDP+uint32(len(udp)), addresses)
	sum = onesSum(uint32(sum), udp)
	if sum != 0xffff { // 0 would mean no checksum
		sum = ^sum
	}
	binary.BigEndian.PutUint16(udp[udpSum:], sum)
}

// onesSum adds the 16-bit words of b to sum. The checksum of IP and UDP is the
// complement of the result.
//
// Source: RFC 1071.
func onesSum(sum uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}
