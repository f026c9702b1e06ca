package wire

import (
	"encoding/binary"
	"hash/crc32"
	"net/netip"
)

// Lengths of the headers below the BTH in bytes.
const (
	IPv4Len = 20
	IPv6Len = 40
	UDPLen  = 8
)

// lrhLen is what stands for the local route header of InfiniBand in the
// checksum: bytes of ones.
const lrhLen = 8

// Flow is a pair of addresses and ports, and computes the ICRC of packets
// between them. One goroutine at a time uses it: it has scratch memory.
//
// Source: IBTA vol. 1, annex A17 (RoCEv2), 17.9.2.
type Flow struct {
	head [lrhLen + IPv6Len + UDPLen + BTHLen]byte // masked headers; BTH behind
	udp  int                                      // where the UDP header begins
}

// NewFlow makes the flow of packets from src to dst, which are of one family.
func NewFlow(src, dst netip.AddrPort) *Flow {
	f := new(Flow)
	b := f.head[:]
	for i := range lrhLen {
		b[i] = 0xff
	}
	ip := b[lrhLen:]
	if src.Addr().Unmap().Is4() {
		f.udp = lrhLen + IPv4Len
		ip[0], ip[1] = 0x45, 0xff // type of service is masked
		ip[6] = 0x40              // do not fragment
		ip[8], ip[9] = 0xff, 17   // time to live is masked
		ip[10], ip[11] = 0xff, 0xff
		s, d := src.Addr().Unmap().As4(), dst.Addr().Unmap().As4()
		copy(ip[12:], s[:])
		copy(ip[16:], d[:])
	} else {
		f.udp = lrhLen + IPv6Len
		binary.BigEndian.PutUint32(ip, 0x6fffffff) // class and flow label are masked
		ip[6], ip[7] = 17, 0xff
		s, d := src.Addr().As16(), dst.Addr().As16()
		copy(ip[8:], s[:])
		copy(ip[24:], d[:])
	}
	u := b[f.udp:]
	binary.BigEndian.PutUint16(u, src.Port())
	binary.BigEndian.PutUint16(u[2:], dst.Port())
	u[6], u[7] = 0xff, 0xff
	return f
}

// IPv4 reports the family.
func (f *Flow) IPv4() bool { return f.udp == lrhLen+IPv4Len }

// ICRC computes the checksum of a packet: covered is everything from the BTH to
// the padding, id the identification of its IPv4 header.
// hot: BenchmarkICRC
func (f *Flow) ICRC(covered []byte, id uint16) uint32 {
	n := UDPLen + len(covered) + ICRCLen
	if f.IPv4() {
		binary.BigEndian.PutUint16(f.head[lrhLen+2:], uint16(IPv4Len+n))
		binary.BigEndian.PutUint16(f.head[lrhLen+4:], id)
	} else {
		binary.BigEndian.PutUint16(f.head[lrhLen+4:], uint16(n))
	}
	binary.BigEndian.PutUint16(f.head[f.udp+4:], uint16(n))
	bth := f.head[f.udp+UDPLen:][:BTHLen]
	copy(bth, covered)
	bth[4] = 0xff // the congestion bits are masked
	crc := crc32.ChecksumIEEE(f.head[:f.udp+UDPLen+BTHLen])
	return crc32.Update(crc, crc32.IEEETable, covered[BTHLen:])
}

// Seal stores the checksum behind covered, in b = covered and four bytes more.
func (f *Flow) Seal(b []byte, id uint16) {
	n := len(b) - ICRCLen
	binary.LittleEndian.PutUint32(b[n:], f.ICRC(b[:n], id))
}
