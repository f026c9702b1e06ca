package soft

import (
	"net/netip"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

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
	peer    *device
	udp     udpPeer
	fabric  fabricRoute
	foreign bool
}

// isForeign reports whether a peer with these features may be something else than a
// soft device. No other code decides this. The in-process link reaches soft devices
// only.
func (d *device) isForeign(features uint32) bool {
	return d.kind != overInproc && features&verbs.PeerGoucx == 0
}

// foreign reports whether packets for q may come from a foreign peer. A datagram may
// come from any device.
func (q *qp) foreign() bool { return q.typ == verbs.UD || q.route.foreign }

// openLink opens the device's link.
func (d *device) openLink() (err error) {
	switch {
	case d.conf.Link == LinkUDP:
		d.kind = overUDP
		if d.udp, err = openUDP(d.conf.Addr, d.conf.Port, socketBuffer); err != nil {
			return err
		}
		d.udp.tap = d.conf.Tap
		d.gid, d.lid = d.udp.gid(), d.udp.lid()
		if d.conf.Faults != nil {
			d.faulty = newFaultUDP(d.conf.Faults, d.udp)
		}
	case d.conf.Fabric != nil || d.conf.Faults != nil:
		d.kind = overFabric
		var f Fabric = &d.conf.Switch.faultFabric
		if d.conf.Fabric != nil {
			f = d.conf.Fabric
		}
		d.fabric = newFabricLink(f, fabricAddr(d.gid, d.lid), d.conf.Faults)
		d.fabric.open(d.handleFabricPacket, d.wake)
	default:
		d.inbox = newInbox(d.conf.Depth)
		d.conf.Switch.attach(d)
	}
	return nil
}

// closeLink closes the device's link.
func (d *device) closeLink() error {
	switch d.kind {
	case overUDP:
		return d.udp.close()
	case overFabric:
		d.fabric.close()
	default:
		d.conf.Switch.detach(d)
	}
	return nil
}

// resolve resolves an address that checkAddress has accepted, of a peer with these
// features.
func (d *device) resolve(a *verbs.AHAttr, features uint32) (r route, err error) {
	r.foreign = d.isForeign(features)
	switch d.kind {
	case overUDP:
		r.udp, err = d.udp.peer(a.DGID, a.DLID)
		r.udp.foreign = r.foreign
		d.udp.setClass(&r.udp, a.TrafficClass, a.HopLimit)
	case overFabric:
		r.fabric = d.fabric.route(a)
	default:
		r.peer, err = d.conf.Switch.lookup(a.DGID)
	}
	return r, err
}

// clock returns the device's time.
func (d *device) clock() ucs.Time {
	if d.kind == overFabric {
		return d.fabric.fabric.Now()
	}
	return ucs.Now()
}

// send sends what the queue pair has to send. It returns true if the link accepts no
// more now and something is left.
func (q *qp) send(now ucs.Time) bool {
	switch q.d.kind {
	case overUDP:
		if q.d.faulty != nil {
			return q.sendFaulty(now)
		}
		return q.sendUDP()
	case overFabric:
		return q.sendFabric(now)
	default:
		return q.sendInproc()
	}
}

// sendOne sends one packet. If the link has no room the packet is lost.
func (q *qp) sendOne(to *route, p *packet) {
	d := q.d
	switch d.kind {
	case overUDP:
		if d.faulty != nil {
			d.faulty.put(&to.udp, p, ucs.Time(d.now.Load()))
			return
		}
		t := d.udp.beginBatch(&to.udp)
		t.add(p)
		t.send()
	case overFabric:
		d.fabric.send(&to.fabric, p, ucs.Time(d.now.Load()))
	default:
		c, seq := to.peer.inbox.claim()
		if c == nil {
			q.count(cntDroppedInbox, 1)
			return
		}
		c.fill(p, d.index)
		c.copyPayload(p)
		storeRelease32(&c.seq, seq)
		to.peer.wake()
	}
}

// receive processes received packets and returns their number. The caller holds the
// receive token.
func (d *device) receive(now ucs.Time) int {
	switch d.kind {
	case overUDP:
		if d.faulty != nil {
			d.faulty.release(now)
		}
		return d.receiveUDP(now)
	case overFabric:
		return d.fabric.poll(now)
	default:
		return d.drain(now)
	}
}

// mayReceive reports whether there may be something to receive.
func (d *device) mayReceive() bool { return d.kind != overInproc || d.inbox.ready() }

// sendFabric sends over a Fabric, packet by packet.
func (q *qp) sendFabric(now ucs.Time) bool {
	var p packet
	for q.nextResponse(&p) || q.nextAck(&p) || q.nextRequest(&p) {
		q.d.fabric.send(&q.route.fabric, &p, now)
	}
	return false
}

// handleFabricPacket processes a packet from the Fabric, which calls it for one packet at a
// time.
func (d *device) handleFabricPacket(from netip.AddrPort, b []byte, now ucs.Time) {
	d.now.Store(int64(now))
	var p packet
	f, id, intact := d.fabric.parse(from, b, &p)
	switch {
	case !intact:
		d.counts.add(cntDroppedICRC, 1)
		return
	case f != 0:
		d.counts.add(cntDroppedOpcode, 1)
		return
	}
	q := d.qps.find(p.DestQP)
	if q == nil {
		d.counts.add(cntDroppedQPN, 1)
		return
	}
	q.acquire()
	q.markMemoryUser()
	switch {
	case q.typ == verbs.RC && q.route.fabric.addr != from && !(q.route.foreign && q.route.fabric.addr.Addr() == from.Addr()):
		q.count(cntDroppedSource, 1)
	case id != 0 && !q.foreign():
		q.count(cntDroppedICRC, 1)
	default:
		p.sgid, p.slid = verbs.GIDOf(from.Addr()), from.Port()
		q.handlePacket(&p, now)
	}
	q.transmitAndRelease()
}
