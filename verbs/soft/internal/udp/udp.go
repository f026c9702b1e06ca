// Package udp carries packets in the format of RoCEv2 over a UDP socket. It knows a packet
// as its bytes from the BTH to the ICRC. Packets to one peer are sent in segment batches,
// with one system call each.
package udp

import (
	"encoding/binary"
	"net/netip"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Sizes in bytes, without the IP and UDP headers.
const (
	// MinPacket is the shortest packet: a BTH and an ICRC.
	MinPacket = wire.BTHLen + wire.ICRCLen
	// MaxPayload is the largest UDP payload over IPv4.
	MaxPayload = 1<<16 - 1 - wire.IPv4Len - wire.UDPLen
	// MaxSegments is the most packets of a segment batch: the limit of the first
	// kernels with UDP segmentation.
	MaxSegments = 64
	// CopyLimit is the longest payload that is copied behind its headers. A longer one
	// gets its own iovec, which costs the kernel more than copying that many bytes. The
	// program may change such a payload between checksum and system call, and the
	// receiver drops the packet then. So retransmitted payloads are copied whatever
	// their length.
	CopyLimit = 512
	// Slack is how many bytes a caller may write from the start of a packet that it builds
	// in place (Batch.Reserve), if the packet is shorter: a short packet is copied as whole.
	Slack = wire.BTHLen + wire.RETHLen + verbs.InlineLen + wire.ICRCLen
)

// RoCEPort is the registered port of RoCEv2, on which rxe and hardware listen.
const RoCEPort = wire.Port

// Source is an address and a port as words, so that senders are compared without
// distinguishing address families.
type Source struct {
	hi, lo uint64 // the address in IPv6 form, IPv4-mapped
	port   uint16
}

// SourceOf returns an address as a Source.
func SourceOf(a netip.AddrPort) Source {
	b := a.Addr().As16()
	return Source{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:]), a.Port()}
}

// GID returns the address as a GID.
func (s *Source) GID() (g verbs.GID) {
	binary.BigEndian.PutUint64(g[:], s.hi)
	binary.BigEndian.PutUint64(g[8:], s.lo)
	return g
}

// AddrPort returns the sender as a netip.AddrPort.
func (s *Source) AddrPort() netip.AddrPort { return netip.AddrPortFrom(s.GID().Addr(), s.port) }

// LID returns the SLID of completions: the source port. It is 0 for the source ports
// that rxe and hardware use for load balancing.
func (s *Source) LID() uint16 {
	if s.port >= 0xc000 {
		return 0
	}
	return s.port
}

// Peer is the address and port of a peer, as destination and as source. It is
// immutable: any goroutine may use and copy it.
type Peer struct {
	u   *Socket // that of the local address
	src Source
	// Foreign is set if the peer sends from any port with any IPv4 identification, and
	// accepts no segment batches.
	Foreign     bool
	tclass      uint8 // type of service of sent packets, if not 0
	ttl         uint8 // time to live of sent packets, if not 0
	SockaddrLen uint8
	flow        uint32   // flow label of sent packets, over IPv6
	sockaddr    [28]byte // as struct sockaddr
	Prefix      wire.Prefix
}

// Matches reports whether d is from this peer: to the local address, from the peer's
// address, and unless it is foreign, from its port.
//
//hot:bench BenchmarkUDPPingPong
func (p *Peer) Matches(d *Datagram) bool {
	return d.u == p.u && d.From.lo == p.src.lo && d.From.hi == p.src.hi && (d.From.port == p.src.port || p.Foreign)
}

// Begin begins a batch to p, which must not change until Send.
//
//hot:bench BenchmarkUDPPingPong
func (p *Peer) Begin() *Batch { return p.u.Begin(p) }

// SamePort reports whether p and o are at the same address and port.
func (p *Peer) SamePort(o *Peer) bool { return p.src == o.src }

// BatchState tells how a batch leaves the socket, and whether it takes more packets.
type BatchState uint8

// States of a batch.
const (
	Singles        BatchState = iota // each packet is a datagram of its own, of any length
	Segments                         // the kernel segments it: packets of one length, or a shorter one
	SegmentsClosed                   // a shorter packet was added: it is the last
)
