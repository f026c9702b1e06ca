package soft

import (
	"encoding/binary"
	"net/netip"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Sizes in bytes, without the IP and UDP headers.
const (
	// minPacket is the shortest packet: a BTH and an ICRC.
	minPacket = wire.BTHLen + wire.ICRCLen
	// maxUDPPayload is the largest UDP payload over IPv4.
	maxUDPPayload = 1<<16 - 1 - wire.IPv4Len - wire.UDPLen
	// maxSegments is the most packets of a segment batch: the limit of the first
	// kernels with UDP segmentation.
	maxSegments = 64
	// copyLimit is the longest payload that is copied behind its headers. A longer one
	// gets its own iovec, which costs the kernel more than copying that many bytes. The
	// program may change such a payload between checksum and system call, and the
	// receiver drops the packet then. So retransmitted payloads are copied whatever
	// their length.
	copyLimit = 512
	// socketBuffer is the requested size of the socket buffers: when many peers send to
	// one device, their windows add up.
	socketBuffer = 4 << 20
)

// rocePort is the registered port of RoCEv2, on which rxe and hardware listen.
const rocePort = wire.Port

// udpSource is an address and a port as words, so that senders are compared without
// distinguishing address families.
type udpSource struct {
	hi, lo uint64 // the address in IPv6 form, IPv4-mapped
	port   uint16
}

func sourceOf(a netip.AddrPort) udpSource {
	b := a.Addr().As16()
	return udpSource{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:]), a.Port()}
}

// gid returns the address as a GID.
func (s *udpSource) gid() (g verbs.GID) {
	binary.BigEndian.PutUint64(g[:], s.hi)
	binary.BigEndian.PutUint64(g[8:], s.lo)
	return g
}

// addrPort returns the sender as a netip.AddrPort.
func (s *udpSource) addrPort() netip.AddrPort { return netip.AddrPortFrom(s.gid().Addr(), s.port) }

// lid returns the SLID of completions: the source port. It is 0 for the source ports
// that rxe and hardware use for load balancing.
func (s *udpSource) lid() uint16 {
	if s.port >= 0xc000 {
		return 0
	}
	return s.port
}

// udpPeer is the address and port of a peer, as destination and as source. It is
// immutable: any goroutine may use and copy it.
type udpPeer struct {
	src udpSource
	// foreign is set if the peer sends from any port with any IPv4 identification, and
	// accepts no segment batches.
	foreign     bool
	tclass      uint8 // type of service of sent packets, if not 0
	ttl         uint8 // time to live of sent packets, if not 0
	sockaddrLen uint8
	sockaddr    [28]byte // as struct sockaddr
	prefix      wire.Prefix
}

// matches reports whether d is from this peer: from its address, and unless it is foreign,
// from its port.
//
//hot:bench BenchmarkUDPPingPong
func (p *udpPeer) matches(d *datagram) bool {
	return d.from.lo == p.src.lo && d.from.hi == p.src.hi && (d.from.port == p.src.port || p.foreign)
}
