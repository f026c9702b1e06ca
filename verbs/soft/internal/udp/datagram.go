package udp

import (
	"net/netip"
	"sync/atomic"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Datagram is one received UDP payload: a packet, or a segment batch of packets of
// equal length, of which the last may be shorter.
//
// Ownership: the holder of the receive token owns it until the next Recv. Hold extends
// this for a packet that waits for its queue pair. Each Hold needs one Release, by any
// goroutine.
type Datagram struct {
	b      []byte // the payload
	seg    int    // length of its packets, from MinPacket to len(b)
	From   Source
	Prefix wire.Prefix // of packets from that sender
	TOS    uint8       // type of service and time to live, if the socket receives them
	TTL    uint8
	Flow   uint32 // IPv6 flow label, if the socket receives it
	first  uint16 // index of packet 0 in the segment batch that it was received in
	u      *Socket
	refs   atomic.Int32 // holds; releases pair with the load in free
	rx     rxBuffer
}

// Packets returns the number of packets.
func (d *Datagram) Packets() int {
	if d.seg == len(d.b) {
		return 1 // avoids the division
	}
	return (len(d.b) + d.seg - 1) / d.seg
}

// Packet returns packet i, from the BTH to the ICRC. Its content is not checked. Only
// the last packet may be shorter than MinPacket.
func (d *Datagram) Packet(i int) []byte {
	return d.b[i*d.seg : min((i+1)*d.seg, len(d.b))]
}

// ICRCCheck is how the ICRC of a received packet is checked. The checksum covers the IPv4
// identification, which the socket does not show. IPv6 has none, so there all but ICRCNone
// are alike: each bit of the checksum detects errors.
type ICRCCheck uint8

const (
	// ICRCSearch is for packets of soft devices. The identification is the index of the
	// packet in its segment batch, or 0. Otherwise it is searched for, and accepted if it is
	// the index in a batch that was segmented on its way. If every value were accepted, one
	// of 65536 damaged packets would pass.
	ICRCSearch ICRCCheck = iota
	// ICRCSearchAny is for packets of any sender: every identification is accepted.
	ICRCSearchAny
	// ICRCStrict accepts the index, 0, and what a packet socket has shown
	// (Socket.WatchIdentifications). Nothing is accepted because a search found it.
	ICRCStrict
	// ICRCNone accepts everything.
	ICRCNone
)

// Check reports whether the ICRC of packet i is right by that check.
//
//hot:bench BenchmarkUDPPingPong
func (d *Datagram) Check(i int, c ICRCCheck) bool {
	if c == ICRCNone {
		return true
	}
	index := d.first + uint16(i)
	id, ok := d.Prefix.Check(d.Packet(i), index)
	if ok && id != index && id != 0 {
		ok = d.checkSearched(i, id, c)
	}
	return ok
}

// checkSearched is Check for an identification that was searched for.
func (d *Datagram) checkSearched(i int, id uint16, c ICRCCheck) bool {
	d.u.Counts[IDSearched].Add(1)
	switch c {
	case ICRCSearchAny:
		return true
	case ICRCStrict:
		return d.u.showsIdentification(&d.From, id, d.Packet(i))
	default:
		return id < MaxSegments
	}
}

// Single makes d the packet b alone, which was received from a sender as segment index of
// its batch. Hold must not be called on d.
func (u *Socket) Single(d *Datagram, from netip.AddrPort, index int, b []byte) {
	if s := SourceOf(from); d.From != s || d.u != u {
		d.From, d.Prefix = s, wire.NewPrefix(from, u.Addr)
	}
	d.b, d.seg, d.first, d.u = b, len(b), uint16(index), u
}

// GID returns the local address that the datagram was sent to.
func (d *Datagram) GID() verbs.GID { return d.u.GID() }

// Hold keeps the datagram beyond the next Recv, until Release.
func (d *Datagram) Hold() { d.refs.Add(1) }

// Release undoes one Hold.
func (d *Datagram) Release() { d.refs.Add(-1) }

// unheld reports whether there is no hold.
func (d *Datagram) unheld() bool { return d.refs.Load() == 0 }

// DefaultTTL is the system's default time to live.
const DefaultTTL = 64

// tapPackets passes the packets of a received datagram to Socket.Tap.
//
//go:noinline
func (d *Datagram) tapPackets() {
	h := wire.Network{Src: d.From.AddrPort(), Dst: d.u.Addr, TOS: d.TOS, TTL: d.TTL, FlowLabel: d.Flow}
	if h.TTL == 0 {
		h.TTL = DefaultTTL
	}
	for i := range d.Packets() {
		b := d.Packet(i)
		h.ID, _ = d.Prefix.Check(b, uint16(i))
		d.u.Tap(false, &h, b)
	}
}
