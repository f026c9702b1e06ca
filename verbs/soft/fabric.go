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
	addr   netip.AddrPort
	prefix wire.Prefix
}

// fabricLink is a device's link to a Fabric. It encodes packets one by one, and applies
// the device's faults to sent and received packets.
type fabricLink struct {
	fabric Fabric
	polled *polledFabric // the fabric, if it must be polled
	self   netip.AddrPort
	// handle processes a received datagram.
	handle func(from netip.AddrPort, b []byte, now ucs.Time)
	wake   func()

	mu                 sync.Mutex // never held during act
	buf                []byte     // scratch for encoding
	txFaults, rxFaults *faultInjector[netip.AddrPort]
}

// newFabricLink returns the link of the device with address self, not yet attached.
// faults may be nil.
func newFabricLink(f Fabric, self netip.AddrPort, faults *Faults) *fabricLink {
	l := &fabricLink{fabric: f, self: self}
	l.polled, _ = f.(*polledFabric)
	if faults != nil {
		l.txFaults = newFaultInjector[netip.AddrPort](faults, false, uint64(self.Port()))
		if faults.Hook != nil {
			l.rxFaults = newFaultInjector[netip.AddrPort](faults, true, uint64(self.Port()))
		}
	}
	return l
}

// open attaches the link. wake is called when there is something to poll.
func (l *fabricLink) open(act func(from netip.AddrPort, b []byte, now ucs.Time), wake func()) {
	l.handle, l.wake = act, wake
	if l.polled != nil {
		l.polled.attach(l.self, l.receive, wake)
		return
	}
	l.fabric.Attach(l.self, l.receive)
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
	if l.txFaults != nil {
		defer l.wake() // for delayed packets
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := packetBuf(&l.buf, p)
	b = b[:p.encode(b)+wire.ICRCLen]
	to.prefix.Seal(b, 0)
	if l.txFaults == nil {
		l.fabric.Send(l.self, to.addr, b)
		return
	}
	l.txFaults.put(to.addr, b, now)
	l.release(now)
}

// packetBuf returns scratch memory for p from BTH to ICRC.
func packetBuf(buf *[]byte, p *packet) []byte {
	*buf = slices.Grow((*buf)[:0], wire.MaxHeaderLen+p.n+wire.Pad(p.n)+wire.ICRCLen)
	return (*buf)[:cap(*buf)]
}

// release sends the delayed packets that are due. The caller holds mu.
func (l *fabricLink) release(now ucs.Time) {
	for h, ok := l.txFaults.take(now); ok; h, ok = l.txFaults.take(now) {
		l.fabric.Send(l.self, h.dest, h.b)
		l.txFaults.recycle(h)
	}
}

// receive processes a datagram that the fabric delivers.
func (l *fabricLink) receive(from netip.AddrPort, b []byte, now ucs.Time) {
	if l.rxFaults == nil {
		l.handle(from, b, now)
		return
	}
	l.mu.Lock()
	l.rxFaults.put(from, b, now)
	l.mu.Unlock()
	l.pollFaults(now)
}

// poll sends and processes the delayed packets that are due, and processes the packets
// that a polled fabric has queued. It returns the number of the latter. The engine's
// pass calls it.
func (l *fabricLink) poll(now ucs.Time) int {
	if l.txFaults != nil {
		l.pollFaults(now)
	}
	if l.polled != nil {
		return l.polled.poll(l.self, now)
	}
	return 0
}

func (l *fabricLink) pollFaults(now ucs.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.release(now)
	if l.rxFaults == nil {
		return
	}
	for h, ok := l.rxFaults.take(now); ok; h, ok = l.rxFaults.take(now) {
		l.mu.Unlock()
		l.handle(h.dest, h.b, now)
		l.mu.Lock()
		l.rxFaults.recycle(h)
	}
}

// nextDeadline returns when poll has something to do; 0: never.
func (l *fabricLink) nextDeadline() ucs.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	var next ucs.Time
	for _, line := range [2]*faultInjector[netip.AddrPort]{l.txFaults, l.rxFaults} {
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
	return p.decode(b[:len(b)-wire.ICRCLen]), id, true
}
