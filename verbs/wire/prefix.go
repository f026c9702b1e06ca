package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Prefix is the ICRC's register before the BTH of the packets of one flow: a
// pair of addresses and ports. Length and identification are added for each
// packet from tables that all flows share, so a packet costs the same whatever
// came before it. It holds no pointer and does not change: any goroutine may use
// it, and copy it. The zero Prefix is of no flow.
//
//	8 bytes of ones | IP, masked | UDP, checksum masked | BTH, byte 4 masked | ...
//
// Source: IBTA vol. 1, annex A17 (RoCEv2), 17.9.2.
type Prefix struct {
	base uint32 // lengths and identification are 0
	ipv6 bool
}

// The fields that differ between packets of a flow, by the bytes behind them.
var (
	totalField   = newField(IPv4Len - ip4Total - 2 + UDPLen)
	idField      = newField(IPv4Len - ip4ID - 2 + UDPLen)
	payloadField = newField(IPv6Len - ip6Payload - 2 + UDPLen)
	lengthField  = newField(UDPLen - udpLength - 2)
)

// bthMask corrects the register before a BTH for its byte 4, by the value of
// that byte: the ICRC takes it for 0xff.
var bthMask = func() (t [256]uint32) {
	for v := range t {
		t[v] = move(uint32(v)^0xff, bthCongestion, &behind)
	}
	return t
}()

// NewPrefix makes the prefix of packets from src to dst.
func NewPrefix(src, dst netip.AddrPort) Prefix {
	h := Network{Src: src, Dst: dst, TOS: 0xff, TTL: 0xff}
	b := make([]byte, 8, 8+IPv6Len+UDPLen) // for InfiniBand's local route header
	for i := range b {
		b[i] = 0xff
	}
	b = h.AppendUDP(h.AppendIP(b, 0), 0)
	ip, udp := b[8:], b[len(b)-UDPLen:]
	if h.IPv4() {
		binary.BigEndian.PutUint16(ip[ip4Total:], 0)
		binary.BigEndian.PutUint16(ip[ip4Sum:], 0xffff)
	} else {
		binary.BigEndian.PutUint32(ip, 0x6fffffff) // traffic class and flow label
	}
	binary.BigEndian.PutUint16(udp[udpLength:], 0)
	binary.BigEndian.PutUint16(udp[udpSum:], 0xffff)
	return Prefix{crc32.ChecksumIEEE(b), !h.IPv4()}
}

// Start computes the checksum up to the end of head, a packet's first bytes from
// the BTH on, its congestion bits among them; Update adds the rest. n is the length of the
// whole packet from the BTH to the ICRC, id the identification of its IPv4 header;
// IPv6 has none.
// hot: BenchmarkICRC
func (p Prefix) Start(head []byte, n int, id uint16) uint32 {
	crc := p.base ^ lengthField.at(uint16(UDPLen+n)) ^ bthMask[head[bthCongestion]]
	if p.ipv6 {
		crc ^= payloadField.at(uint16(UDPLen + n))
	} else {
		crc ^= totalField.at(uint16(IPv4Len+UDPLen+n)) ^ idField.at(id)
	}
	return Update(crc, head)
}

// ICRC computes the checksum of a packet; covered is all from the BTH to the
// padding.
func (p Prefix) ICRC(covered []byte, id uint16) uint32 {
	return p.Start(covered, len(covered)+ICRCLen, id)
}

// Seal stores the checksum in the last four bytes of b, a packet from the BTH to
// the ICRC.
// hot: BenchmarkICRC
func (p Prefix) Seal(b []byte, id uint16) {
	n := len(b) - ICRCLen
	binary.LittleEndian.PutUint32(b[n:], p.Start(b[:n], len(b), id))
}

// Check compares the checksum of b, a packet from the BTH to the ICRC that came
// as segment index of its train, and gives the identification with which it is
// right: index for a peer that follows goucx's rule, 0 for one that sends
// unfragmentable packets from a socket, and any other for rxe and hardware. One
// that is neither index nor 0 took a search, and leaves 16 of the checksum's 32
// bits to find errors. With IPv6 there is no identification: 0 is right. Anything
// shorter than BTH and ICRC is wrong.
//
// Cost: one pass over b; the search 0.2 µs more.
// hot: BenchmarkICRC
func (p Prefix) Check(b []byte, index uint16) (id uint16, ok bool) {
	n := len(b) - ICRCLen
	if n < BTHLen {
		return 0, false
	}
	crc, got := p.Start(b[:n], len(b), index), binary.LittleEndian.Uint32(b[n:])
	switch {
	case p.ipv6:
		return 0, crc == got
	case crc == got:
		return index, true
	}
	id, ok = SolveID(crc, got, n)
	return id ^ index, ok
}
