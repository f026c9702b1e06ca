package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Prefix is the CRC register before the BTH, for the packets of one flow: a pair of
// addresses and ports. For each packet, the effects of its length and identification
// are added from tables that all flows share. So the cost does not depend on the
// previous packet. A Prefix holds no pointer and is immutable: any goroutine may use
// and copy it. The zero Prefix belongs to no flow.
//
//	8 bytes of ones | IP, masked | UDP, checksum masked | BTH, byte 4 masked | ...
//
// Source: IBTA vol. 1, annex A17 (RoCEv2), 17.9.2.
type Prefix struct {
	base uint32 // for lengths and identification 0
	ipv6 bool
}

// The fields that differ between packets of a flow. The argument is the number of bytes
// that follow.
var (
	totalField   = newField(IPv4Len - ip4Total - 2 + UDPLen)
	idField      = newField(IPv4Len - ip4ID - 2 + UDPLen)
	payloadField = newField(IPv6Len - ip6Payload - 2 + UDPLen)
	lengthField  = newField(UDPLen - udpLength - 2)
)

// bthMask corrects the register before a BTH for byte 4 of the BTH, by its value: the
// ICRC is computed as if the byte were 0xff.
var bthMask = func() (t [256]uint32) {
	for v := range t {
		t[v] = shift(uint32(v)^0xff, bthCongestion, &backward)
	}
	return t
}()

// NewPrefix returns the prefix of packets from src to dst.
func NewPrefix(src, dst netip.AddrPort) Prefix {
	h := Network{Src: src, Dst: dst, TOS: 0xff, TTL: 0xff}
	b := make([]byte, 8, 8+IPv6Len+UDPLen) // in place of InfiniBand's local route header
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

// Start computes the ICRC up to the end of head, the packet's first bytes from the BTH
// on; head must include the congestion bits. Update adds the rest. n is the length of
// the whole packet from the BTH to the ICRC. id is the IPv4 identification; IPv6 has
// none.
//
//hot:bench BenchmarkICRC
func (p Prefix) Start(head []byte, n int, id uint16) uint32 {
	crc := p.base ^ lengthField.at(uint16(UDPLen+n)) ^ bthMask[head[bthCongestion]]
	if p.ipv6 {
		crc ^= payloadField.at(uint16(UDPLen + n))
	} else {
		crc ^= totalField.at(uint16(IPv4Len+UDPLen+n)) ^ idField.at(id)
	}
	return Update(crc, head)
}

// ICRC computes the checksum of a packet; covered reaches from the BTH to the padding.
func (p Prefix) ICRC(covered []byte, id uint16) uint32 {
	return p.Start(covered, len(covered)+ICRCLen, id)
}

// Seal stores the checksum in the last four bytes of b, a packet from the BTH to the
// ICRC.
//
//hot:bench BenchmarkICRC
func (p Prefix) Seal(b []byte, id uint16) {
	n := len(b) - ICRCLen
	binary.LittleEndian.PutUint32(b[n:], p.Start(b[:n], len(b), id))
}

// Check compares the checksum of b, a received packet from the BTH to the ICRC, which
// was segment index of its batch. It returns the identification for which the checksum
// is right. That is index for a peer that follows goucx's rule, 0 for a socket that
// sends packets unfragmented, and any value for rxe and hardware. A value other than
// index and 0 was searched for. The search leaves 16 of the 32 bits of the checksum to
// detect errors. IPv6 has no identification: 0 is right. A packet shorter than BTH and
// ICRC is wrong.
//
// Cost: one pass over b; the search takes 0.2 µs more.
//
//hot:bench BenchmarkICRC
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

// ICRCCache computes the ICRC of consecutive short packets of one flow and one length, as
// in a segment batch. If they also have the same first eight bytes, it reuses the CRC
// register after those bytes. For other packets it costs no more than Prefix alone. The
// zero Alike is ready for use.
//
// Concurrency: one goroutine at a time.
type ICRCCache struct {
	firstBytes uint64
	n          int
	flow       Prefix
	reg        uint32 // after those bytes, for identification 0
}

// cachedLen is how many bytes of the BTH are cached: all before the PSN.
const cachedLen = 8

// cachedIDField is the effect of the IPv4 identification on the register after cachedLen
// bytes of the BTH.
var cachedIDField = newField(IPv4Len - ip4ID - 2 + UDPLen + cachedLen)

// sum computes the ICRC of b, a packet from the BTH to the ICRC; id is the IPv4
// identification.
func (a *ICRCCache) sum(p Prefix, b []byte, id uint16) uint32 {
	if first := binary.NativeEndian.Uint64(b); first != a.firstBytes || len(b) != a.n || p != a.flow {
		a.firstBytes, a.n, a.flow = first, len(b), p
		a.reg = p.Start(b[:cachedLen], len(b), 0)
	}
	reg := a.reg
	if !p.ipv6 {
		reg ^= cachedIDField.at(id)
	}
	return updateSliced(reg, b[cachedLen:len(b)-ICRCLen])
}

// Seal is like Prefix.Seal.
//
//hot:bench BenchmarkICRC
func (a *ICRCCache) Seal(p Prefix, b []byte, id uint16) {
	binary.LittleEndian.PutUint32(b[len(b)-ICRCLen:], a.sum(p, b, id))
}

// Valid reports whether the ICRC of b is right for that identification. b is a packet
// from the BTH to the ICRC, at least BTHLen+ICRCLen bytes.
//
//hot:bench BenchmarkICRC
func (a *ICRCCache) Valid(p Prefix, b []byte, id uint16) bool {
	return a.sum(p, b, id) == binary.LittleEndian.Uint32(b[len(b)-ICRCLen:])
}
