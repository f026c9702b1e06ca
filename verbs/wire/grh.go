package wire

import (
	"encoding/binary"
	"net/netip"
)

// GRHLen is the length in bytes of the GRH area in front of a received datagram's data.
const GRHLen = 40

// GRH is a view of that area: InfiniBand's global route header, or what RoCEv2 has in
// its place. It has at least GRHLen bytes.
//
//	IPv4: 20 bytes of zeros | IPv4 header
//	IPv6: IPv6 header
//
// Source: IBTA vol. 1, annex A17; rdma-core, ibv_init_ah_from_wc.
type GRH []byte

// Put writes the area of a packet with n bytes from the BTH to the ICRC.
func (g GRH) Put(h *Network, n int) {
	at := 0
	if h.IPv4() {
		at = GRHLen - IPv4Len
		clear(g[:at])
	}
	h.AppendIP(g[:at:GRHLen], UDPLen+n)
}

// Network parses the area; the ports are 0. ok is false if g holds no header or is too
// short. No field shows which header it is. It is IPv4, unless the area begins like
// IPv6 and the IPv4 checksum is wrong.
func (g GRH) Network() (h Network, ok bool) {
	if len(g) < GRHLen {
		return h, false
	}
	ip4, ip6 := g[GRHLen-IPv4Len:GRHLen], g[:GRHLen]
	is6 := ip6[0]>>4 == 6
	switch {
	case ip4[0]>>4 == 4 && !is6, ip4[0] == 0x45 && onesSum(0, ip4) == 0xffff:
		return Network{
			Src: netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip4[ip4Src:])), 0),
			Dst: netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip4[ip4Dst:])), 0),
			TOS: ip4[ip4TOS], TTL: ip4[ip4TTL], ID: binary.BigEndian.Uint16(ip4[ip4ID:]),
		}, true
	case is6:
		first := binary.BigEndian.Uint32(ip6)
		src, dst := netip.AddrFrom16([16]byte(ip6[ip6Src:])), netip.AddrFrom16([16]byte(ip6[ip6Dst:]))
		if src.Is4In6() || dst.Is4In6() {
			return h, false // IPv4-mapped addresses are not valid on a network
		}
		return Network{
			Src: netip.AddrPortFrom(src, 0), Dst: netip.AddrPortFrom(dst, 0),
			TOS: uint8(first >> 20), TTL: ip6[ip6Hop], FlowLabel: first & flowMask,
		}, true
	}
	return h, false
}
