package soft

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Fabric carries packets as datagrams in place of a socket. The network of internal/sim
// is one, for simulations. Another connects the in-process devices of a Switch when
// they have faults. Each datagram is one packet, from BTH to ICRC. Addresses are GID
// and LID of the devices.
type Fabric interface {
	// Attach registers recv to be called with the datagrams for an address. The fabric
	// owns b again when recv returns.
	Attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time))
	// Detach removes the registration.
	Detach(at netip.AddrPort)
	// Send delivers a copy of b, or loses it. It never calls a receiver itself.
	Send(from, to netip.AddrPort, b []byte)
	// Now returns the time of the devices on this fabric.
	Now() ucs.Time
}

// fabricRoute is the resolved address of a device on a Fabric.
type fabricRoute struct {
	to     netip.AddrPort
	prefix wire.Prefix
}

// fabricLink is a device's link to a Fabric. It encodes packets one by one, and applies
// the device's faults to sent and received packets.
type fabricLink struct {
	fabric Fabric
	mail   *mail // the fabric, if it must be polled
	self   netip.AddrPort
	// act processes a received datagram.
	act  func(from netip.AddrPort, b []byte, now ucs.Time)
	wake func()

	mu      sync.Mutex // never held during act
	buf     []byte     // scratch for encoding
	out, in *faultLine[netip.AddrPort]
}

// newFabricLink returns the link of the device with address self, not yet attached.
// faults may be nil.
func newFabricLink(f Fabric, self netip.AddrPort, faults *Faults) *fabricLink {
	l := &fabricLink{fabric: f, self: self}
	l.mail, _ = f.(*mail)
	if faults != nil {
		l.out = newFaultLine[netip.AddrPort](faults, false, uint64(self.Port()))
		if faults.Hook != nil {
			l.in = newFaultLine[netip.AddrPort](faults, true, uint64(self.Port()))
		}
	}
	return l
}

// open attaches the link. wake is called when there is something to poll.
func (l *fabricLink) open(act func(from netip.AddrPort, b []byte, now ucs.Time), wake func()) {
	l.act, l.wake = act, wake
	if l.mail != nil {
		l.mail.attach(l.self, l.arrived, wake)
		return
	}
	l.fabric.Attach(l.self, l.arrived)
}

// close detaches the link. Delayed packets are lost.
func (l *fabricLink) close() { l.fabric.Detach(l.self) }

// route returns the route to the device with that address.
func (l *fabricLink) route(a *verbs.AHAttr) fabricRoute {
	to := fabricAddr(a.DGID, a.DLID)
	return fabricRoute{to, wire.NewPrefix(l.self, to)}
}

// fabricAddr returns the address of a device. LID 0 means 4791.
func fabricAddr(g verbs.GID, lid uint16) netip.AddrPort {
	if lid == 0 {
		lid = wire.Port
	}
	return netip.AddrPortFrom(g.Addr(), lid)
}

// send encodes and sends p.
func (l *fabricLink) send(to *fabricRoute, p *packet, now ucs.Time) {
	if l.out != nil {
		defer l.wake() // for delayed packets
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := packetRoom(&l.buf, p)
	b = b[:encode(p, b)+wire.ICRCLen]
	to.prefix.Seal(b, 0)
	if l.out == nil {
		l.fabric.Send(l.self, to.to, b)
		return
	}
	l.out.put(to.to, b, now)
	l.release(now)
}

// packetRoom returns scratch memory for p from BTH to ICRC.
func packetRoom(buf *[]byte, p *packet) []byte {
	*buf = slices.Grow((*buf)[:0], maxHeaders+p.n+wire.Pad(p.n)+wire.ICRCLen)
	return (*buf)[:cap(*buf)]
}

// release sends the delayed packets that are due. The caller holds mu.
func (l *fabricLink) release(now ucs.Time) {
	for h, ok := l.out.take(now); ok; h, ok = l.out.take(now) {
		l.fabric.Send(l.self, h.dest, h.b)
		l.out.give(h)
	}
}

// arrived processes a datagram that the fabric delivers.
func (l *fabricLink) arrived(from netip.AddrPort, b []byte, now ucs.Time) {
	if l.in == nil {
		l.act(from, b, now)
		return
	}
	l.mu.Lock()
	l.in.put(from, b, now)
	l.mu.Unlock()
	l.pollFaults(now)
}

// poll sends and processes the delayed packets that are due, and processes the packets
// that a polled fabric has queued. It returns the number of the latter. The engine's
// pass calls it.
func (l *fabricLink) poll(now ucs.Time) int {
	if l.out != nil {
		l.pollFaults(now)
	}
	if l.mail != nil {
		return l.mail.poll(l.self, now)
	}
	return 0
}

func (l *fabricLink) pollFaults(now ucs.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(now)
	if l.in == nil {
		return
	}
	for h, ok := l.in.take(now); ok; h, ok = l.in.take(now) {
		l.mu.Unlock()
		l.act(h.dest, h.b, now)
		l.mu.Lock()
		l.in.give(h)
	}
}

// next returns when poll has something to do; 0: never.
func (l *fabricLink) next() ucs.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next ucs.Time
	for _, line := range [2]*faultLine[netip.AddrPort]{l.out, l.in} {
		if line == nil {
			continue
		}
		if t := line.next(); t != 0 && (next == 0 || t < next) {
			next = t
		}
	}
	return next
}

// parse checks the ICRC of a received packet and decodes it. p's payload points into b.
// intact is false if the checksum is wrong. id is the IPv4 identification that the
// checksum was computed with; soft devices use 0.
func (l *fabricLink) parse(from netip.AddrPort, b []byte, p *packet) (f wire.Fault, id uint16, intact bool) {
	if from.Addr().Is4() != l.self.Addr().Is4() {
		return wire.FaultNone, 0, false
	}
	id, intact = wire.NewPrefix(from, l.self).Check(b, 0)
	if !intact {
		return wire.FaultNone, 0, false
	}
	return decode(b[:len(b)-wire.ICRCLen], p), id, true
}
