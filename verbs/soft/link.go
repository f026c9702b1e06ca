package soft

import (
	"fmt"
	"net/netip"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// link carries the packets of a device: in-process (inprocLink), over a UDP socket
// (udpLink), over a Fabric (fabricLink), or over one of the last two with faults
// (faultLink).
//
// The engine calls a link once per batch, never per packet. The loops over packets are in
// the link: it takes from a queue pair what it can carry, and hands what it receives to
// the queue pairs.
type link interface {
	// resolve returns the route to a peer. device.resolve adds whether it is foreign.
	resolve(a *verbs.AHAttr) (route, error)
	// send sends what q has to send. It returns true if the link accepts no more now and
	// something is left. The caller owns q.
	send(q *qp, now ucs.Time) (full bool)
	// sendOne sends a packet that is not in the send queue. It returns false if the link
	// has no room: the packet is lost.
	sendOne(to *route, p *packet, now ucs.Time) bool
	// receive processes received packets and returns their number. The caller holds the
	// receive token of e.
	receive(e *engine, now ucs.Time) int
	// hasPackets reports whether receive would find packets that are for the whole device. The UDP
	// link returns false: its poller watches the socket.
	hasPackets() bool
	// join makes the link receive the datagrams to a multicast group, until leave. The caller
	// holds groups.mu.
	join(group verbs.GID) error
	leave(group verbs.GID) error
	// close ends the link.
	close() error
}

// linkKind is the kind of a device's link.
type linkKind uint8

const (
	overInproc linkKind = iota
	overUDP
	overFabric
)

// route is the resolved address of a peer's port. Only the field of the device's link
// is set.
type route struct {
	peer    *engine // that of the peer's queue pair; of an address handle: the device's own
	index   uint32  // of the peer in the Switch
	udp     udp.Peer
	fabric  fabricRoute
	foreign bool
	// group is the multicast group of an address handle on the in-process link; nil: a port.
	group *verbs.GID
}

// isForeign reports whether a peer with these features may be something else than a
// soft device. No other code decides this. The in-process link reaches soft devices
// only.
func (d *device) isForeign(features uint32) bool {
	return d.kind != overInproc && features&verbs.PeerGoucx == 0
}

// foreign reports whether packets for q may come from a foreign peer. A datagram may
// come from any device that reaches the port; foreign ones send to wire.Port alone.
func (q *qp) foreign() bool { return q.route.foreign || q.typ == verbs.UD && q.d.lid == wire.Port }

// icrcCheck returns how the ICRC of packets is checked that come from a soft peer, or if
// foreign is set, that may come from any device.
func (d *device) icrcCheck(foreign bool) udp.ICRCCheck {
	switch {
	case d.conf.ICRC == ICRCStrict:
		return udp.ICRCStrict
	case foreign:
		return udp.ICRCSearchAny
	case d.conf.ICRC == ICRCOff:
		return udp.ICRCNone
	}
	return udp.ICRCSearch
}

// socketBuffer is the requested size of a device's socket buffers: when many peers send
// to one device, their windows add up.
const socketBuffer = 4 << 20

// linkKind returns the kind of the link that the configuration demands.
func (c *Config) linkKind() linkKind {
	switch {
	case c.Link == LinkUDP:
		return overUDP
	case c.Fabric != nil || c.Faults != nil:
		return overFabric
	}
	return overInproc
}

// openLink opens the device's link. The in-process devices of a Switch serialise their
// packets if they have faults: a Fabric of the Switch carries them.
func (d *device) openLink() error {
	switch d.kind {
	case overUDP:
		all, err := openSockets(d.addrs, d.conf.Port)
		if err != nil {
			return err
		}
		d.useSockets(all)
		d.link = udpLink{d}
		if f := d.conf.Faults; f != nil {
			d.faults = newFaultLink(f, udpLink{d}, d.lid, d.wake)
			d.link = d.faults
			if f.concernReceived() {
				d.link = &faultUDPLink{faultLink: d.faults, d: d}
				d.faults.deliver = d.link.(*faultUDPLink).handlePacket
			}
		}
	case overFabric:
		l := &fabricLink{d: d, fabric: d.conf.Fabric, self: fabricAddr(d.gid, d.lid)}
		d.link = l
		l.handle = l.handlePacket
		if f := d.conf.Faults; f != nil {
			d.faults = newFaultLink(f, l, d.lid, d.wake)
			d.link = d.faults
			if f.concernReceived() {
				l.handle = d.faults.wrap(l.handle)
			}
		}
		l.attach(&d.conf.Switch.faultFabric, d.wake)
	default:
		d.conf.Switch.attach(d)
		d.link = inprocLink{d}
	}
	return nil
}

// resolve resolves an address that checkAddress has accepted, of a peer with these
// features. A foreign peer without a port of its own responds to port 4791, so the device
// must be on it. A soft device responds to the port that it was given.
func (d *device) resolve(a *verbs.AHAttr, features uint32) (route, error) {
	r, err := d.link.resolve(a)
	r.foreign = d.isForeign(features)
	r.udp.Foreign = r.foreign
	if err != nil || !r.foreign || d.kind != overUDP || a.DGID.Addr().IsMulticast() { // a group does not respond
		return r, err
	}
	if a.DLID == 0 && d.lid != wire.Port {
		return r, fmt.Errorf("peer %v has LID 0 and no PeerGoucx, so it responds to port %d, but the device is on %d: set its port to %d: %w",
			a.DGID.Addr(), wire.Port, d.lid, wire.Port, ucs.ErrInvalid)
	}
	if d.conf.ICRC == ICRCStrict {
		if err = d.sockets[a.SGIDIndex].ShowsIdentifications(); err != nil {
			err = fmt.Errorf("ICRC strict with peer %v, which has no PeerGoucx: use IPv6, or permit packet sockets (CAP_NET_RAW): %w", a.DGID.Addr(), err)
		}
	}
	return r, err
}

// clock returns the device's time.
func (d *device) clock() ucs.Time {
	if d.conf.Fabric != nil {
		return d.conf.Fabric.Now()
	}
	return ucs.Now()
}

// sendOne sends one packet. If the link has no room the packet is lost.
func (q *qp) sendOne(to *route, p *packet) {
	if !q.d.link.sendOne(to, p, ucs.Time(q.e.now.Load())) {
		q.count(cntDroppedInbox, 1)
	}
}

// nextWithRoute builds the next packet that q has to send and returns its route, or nil
// if there is none. The packet that it built before has been sent by then, so a datagram
// completes.
func (q *qp) nextWithRoute(p *packet) *route {
	if q.typ == verbs.UD {
		q.completeDatagrams(q.req.tx)
		return q.nextDatagram(p)
	}
	if q.nextResponse(p) || q.nextAck(p) || q.nextRequest(p) {
		return &q.route
	}
	return nil
}

// mayReceive reports whether there may be something to receive.
func (e *engine) mayReceive() bool { return e.inbox.max == 0 || e.inbox.ready() }

// fabricAddr returns the address of a device. LID 0 means 4791.
func fabricAddr(g verbs.GID, lid uint16) netip.AddrPort {
	if lid == 0 {
		lid = wire.Port
	}
	return netip.AddrPortFrom(g.Addr(), lid)
}
