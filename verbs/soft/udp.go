package soft

import (
	"encoding/binary"
	"net/netip"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Sizes of datagrams in bytes, all without the IP and UDP headers.
const (
	// minPacket is the shortest packet: a BTH and an ICRC.
	minPacket = wire.BTHLen + wire.ICRCLen
	// maxTrain is the longest datagram that IPv4 carries.
	maxTrain = 1<<16 - 1 - wire.IPv4Len - wire.UDPLen
	// maxSegments is the most packets of a train: what the first kernels that
	// segment take.
	maxSegments = 64
	// copyLimit is the longest payload that is copied behind its headers; a longer
	// one goes by an iovec of its own, which costs the kernel more than so many
	// bytes of copying. Between checksum and system call the program may change it,
	// and then the packet is dropped; so what is sent again is copied, too.
	copyLimit = 512
	// socketBuffer is the wish for a socket's buffers: where many send to one
	// device, their windows add up.
	socketBuffer = 4 << 20
)

// rocePort is the port that RoCEv2 has of its own, on which rxe and hardware
// listen.
const rocePort = wire.Port

// udpSource is an address and a port as words, so that a packet's sender is
// compared without looking at families.
type udpSource struct {
	hi, lo uint64 // the address in IPv6 form, IPv4 mapped
	port   uint16
}

func sourceOf(a netip.AddrPort) udpSource {
	b := a.Addr().As16()
	return udpSource{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:]), a.Port()}
}

// gid is the sender's address as a GID.
func (s *udpSource) gid() (g verbs.GID) {
	binary.BigEndian.PutUint64(g[:], s.hi)
	binary.BigEndian.PutUint64(g[8:], s.lo)
	return g
}

// addrPort is the sender as the net packages write it.
func (s *udpSource) addrPort() netip.AddrPort { return netip.AddrPortFrom(s.gid().Addr(), s.port) }

// lid is what a completion names as the sender's LID: the source port, or 0
// where that is one of the ports that rxe and hardware spread their packets over.
func (s *udpSource) lid() uint16 {
	if s.port >= 0xc000 {
		return 0
	}
	return s.port
}

// udpPeer is where packets go to, and come from: a peer's address and port. It
// does not change; any goroutine may use it, and copy it.
type udpPeer struct {
	src udpSource
	// foreign: the peer sends from any port, with any identification, and takes no
	// segment batches.
	foreign bool
	tclass  uint8 // type of service of what is sent, where not 0
	hops    uint8 // time to live of what is sent, where not 0
	nameLen uint8
	name    [28]byte // as the kernel takes it
	tx      wire.Prefix
}

// sent reports whether d comes from this peer: from its address, and its port unless
// it is foreign.
// hot: BenchmarkUDPPingPong
func (p *udpPeer) sent(d *datagram) bool {
	return d.from.lo == p.src.lo && d.from.hi == p.src.hi && (d.from.port == p.src.port || p.foreign)
}
