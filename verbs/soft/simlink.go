package soft

import (
	"net/netip"
	"slices"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// Fabric carries packets as datagrams, in place of a socket: a simulated network
// (the network of internal/sim is one), or the in-process one for devices with
// faults. Each datagram is one packet, from BTH to ICRC; addresses are GID and
// LID of the devices.
type Fabric interface {
	// Attach has recv called with what arrives at an address. The bytes are the
	// fabric's again when it returns.
	Attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time))
	// Detach ends that.
	Detach(at netip.AddrPort)
	// Send carries a copy of b, or loses it. It never calls a receiver itself.
	Send(from, to netip.AddrPort, b []byte)
	// Now is the time by which devices on this fabric run.
	Now() ucs.Time
}

// fabricRoute is the way to a device over a fabric.
type fabricRoute struct {
	to     netip.AddrPort
	prefix wire.Prefix
}

// fabricLink is a device's link to a Fabric. Packets are serialised one by one,
// and pass the device's faults on their way out and in.
type fabricLink struct {
	fabric Fabric
	mail   *mail // the fabric, where that is to be polled
	self   netip.AddrPort
	// act is given what arrives.
	act  func(from netip.AddrPort, b []byte, now ucs.Time)
	wake func()

	mu      sync.Mutex // never held during act
	buf     []byte     // the packet being sent
	out, in *faultLine[netip.AddrPort]
}

// newFabricLink makes the link of the device with address self; open connects
// it. faults may be nil.
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

// open connects the link. wake is called when something is to be polled.
func (l *fabricLink) open(act func(from netip.AddrPort, b []byte, now ucs.Time), wake func()) {
	l.act, l.wake = act, wake
	if l.mail != nil {
		l.mail.attach(l.self, l.arrived, wake)
		return
	}
	l.fabric.Attach(l.self, l.arrived)
}

// close disconnects it. Packets held back are lost.
func (l *fabricLink) close() { l.fabric.Detach(l.self) }

// route is the way to the device with that address.
func (l *fabricLink) route(a *verbs.AHAttr) fabricRoute {
	to := fabricAddr(a.DGID, a.DLID)
	return fabricRoute{to, wire.NewPrefix(l.self, to)}
}

// fabricAddr is the address of a device. A LID of 0 stands for 4791.
func fabricAddr(g verbs.GID, lid uint16) netip.AddrPort {
	if lid == 0 {
		lid = wire.Port
	}
	return netip.AddrPortFrom(g.Addr(), lid)
}

// send sends p.
func (l *fabricLink) send(to *fabricRoute, p *packet, now ucs.Time) {
	if l.out != nil {
		defer l.wake() // for what is held back
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

// packetRoom gives scratch for p from BTH to ICRC.
func packetRoom(buf *[]byte, p *packet) []byte {
	*buf = slices.Grow((*buf)[:0], maxHeaders+p.n+wire.Pad(p.n)+wire.ICRCLen)
	return (*buf)[:cap(*buf)]
}

// release sends what is due. The caller has the lock.
func (l *fabricLink) release(now ucs.Time) {
	for h, ok := l.out.take(now); ok; h, ok = l.out.take(now) {
		l.fabric.Send(l.self, h.dest, h.b)
		l.out.give(h)
	}
}

// arrived is the fabric's receiver.
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

// poll sends and acts on what faults held back until now, and on what waits in
// the mail; it gives the number of packets from there. The engine's pass calls it.
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

// next is when poll has something to do; 0: never.
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

// parse checks the ICRC of what came from a device, and decodes it; p's payload
// stays in b. Without the right checksum, intact is false. id is the IPv4
// identification that the checksum was computed with; soft devices use 0.
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
