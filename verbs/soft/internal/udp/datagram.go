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

// Check reports whether the ICRC of packet i is right. The checksum covers the IPv4
// identification, which the socket does not show. It is i in a segment batch, 0, or
// found by a search. A foreign sender may use any value. From a soft device only the
// index in a batch that was segmented on its way is accepted. If every value were, one
// of 65536 damaged packets would pass.
//
//hot:bench BenchmarkUDPPingPong
func (d *Datagram) Check(i int, foreign bool) bool {
	index := d.first + uint16(i)
	id, ok := d.Prefix.Check(d.Packet(i), index)
	if ok && id != index && id != 0 {
		ok = id < MaxSegments || foreign
		d.u.Counts[IDSearched].Add(1)
	}
	return ok
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
	h := wire.Network{Src: d.From.AddrPort(), Dst: d.u.Addr, TOS: d.TOS, TTL: d.TTL}
	if h.TTL == 0 {
		h.TTL = DefaultTTL
	}
	for i := range d.Packets() {
		b := d.Packet(i)
		h.ID, _ = d.Prefix.Check(b, uint16(i))
		d.u.Tap(false, &h, b)
	}
}
