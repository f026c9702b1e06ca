package soft

import (
	"net/netip"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// encodedLink is a link that also sends packets that are encoded already.
type encodedLink interface {
	link
	// sendEncoded sends packets in order, each with an ICRC for its route. The caller
	// owns them again when it returns.
	sendEncoded(ps []delayedPacket[route])
}

// faultLink is a link with the device's faults. It encodes packets, decides for each of
// them, and passes those that are due to the link below, in batches. If received packets
// may have faults, the link below passes them to received, one by one.
type faultLink struct {
	encodedLink
	// deliver processes a received packet that was not dropped; nil: received packets have
	// no faults.
	deliver func(s *rxSource, b []byte, now ucs.Time)
	wake    func() // called after a packet was sent: it may be delayed

	mu  sync.Mutex // never held during deliver
	buf []byte     // scratch for encoding
	tx  *faultInjector[route]
	rx  *faultInjector[rxSource]
	due []delayedPacket[route]
}

// rxSource is what the link below reports about a received packet. A Fabric reports both
// addresses alone.
type rxSource struct {
	from     netip.AddrPort
	dest     netip.AddrPort // of a Fabric: the address that it was sent to
	to       *udp.Socket    // of UDP: the socket that received it
	index    int            // in its segment batch
	tos, ttl uint8
	flow     uint32
}

// newFaultLink wraps below. Devices with equal Faults draw different random numbers if
// their LIDs differ.
func newFaultLink(f *Faults, below encodedLink, lid uint16, wake func()) *faultLink {
	return &faultLink{
		encodedLink: below, wake: wake,
		tx: newFaultInjector[route](f, false, uint64(lid)), rx: newFaultInjector[rxSource](f, true, uint64(lid)),
	}
}

// faultPrefix is the pseudo header over which the ICRC of delayed packets is computed.
// With it release recognises packets with flipped bits. It sends those with an ICRC over
// faultPrefix again, which is wrong on the real path.
var faultPrefix = wire.NewPrefix(netip.AddrPortFrom(netip.IPv6Loopback(), 1), netip.AddrPortFrom(netip.IPv6Loopback(), 2))

func (l *faultLink) send(q *qp, now ucs.Time) bool {
	if q.d.kind == overUDP && q.typ == verbs.RC && q.delaySend(now) {
		return true
	}
	var p packet
	for to := q.nextWithRoute(&p); to != nil; to = q.nextWithRoute(&p) {
		l.put(to, &p, now)
	}
	l.release(now)
	l.wake()
	return false
}

func (l *faultLink) sendOne(to *route, p *packet, now ucs.Time) bool {
	l.put(to, p, now)
	l.release(now)
	l.wake()
	return true
}

// put encodes a packet and schedules it.
func (l *faultLink) put(to *route, p *packet, now ucs.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tx.put(*to, encodeSealed(&l.buf, p, &faultPrefix), now)
}

// release sends the packets that are due.
func (l *faultLink) release(now ucs.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, ok := l.tx.take(now); ok; h, ok = l.tx.take(now) {
		if _, intact := faultPrefix.Check(h.b, 0); !intact {
			h.dest.udp.Prefix, h.dest.fabric.prefix = faultPrefix, faultPrefix
		}
		l.due = append(l.due, h)
	}
	if len(l.due) == 0 {
		return
	}
	l.sendEncoded(l.due)
	for i := range l.due {
		l.tx.recycle(l.due[i])
	}
	l.due = l.due[:0]
}

// wrap makes the link deliver to handle what passes the faults, and returns the function
// that a Fabric calls for each packet.
func (l *faultLink) wrap(handle fabricHandler) fabricHandler {
	l.deliver = func(s *rxSource, b []byte, now ucs.Time) { handle(s.from, s.dest, b, now) }
	return func(from, to netip.AddrPort, b []byte, now ucs.Time) {
		l.received(rxSource{from: from, dest: to}, b, now)
	}
}

// received decides about a packet that the link below delivers.
func (l *faultLink) received(s rxSource, b []byte, now ucs.Time) {
	l.mu.Lock()
	l.rx.put(s, b, now)
	l.mu.Unlock()
	l.releaseReceived(now)
}

// releaseReceived processes the received packets that are due.
func (l *faultLink) releaseReceived(now ucs.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, ok := l.rx.take(now); ok; h, ok = l.rx.take(now) {
		l.mu.Unlock()
		l.deliver(&h.dest, h.b, now)
		l.mu.Lock()
		l.rx.recycle(h)
	}
}

func (l *faultLink) receive(e *engine, now ucs.Time) int {
	l.release(now)
	l.releaseReceived(now)
	return l.encodedLink.receive(e, now)
}

// nextDeadline returns when the next delayed packet is due, or never.
func (l *faultLink) nextDeadline() ucs.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := never
	if len(l.tx.delayed) > 0 {
		next = l.tx.delayed[0].when
	}
	if len(l.rx.delayed) > 0 {
		next = min(next, l.rx.delayed[0].when)
	}
	return next
}

// faultUDPLink is a faultLink over UDP whose received packets have faults.
type faultUDPLink struct {
	*faultLink
	d      *device
	single udp.Datagram // the packet that is processed
}

// receive passes each packet of the socket through the injector.
func (l *faultUDPLink) receive(_ *engine, now ucs.Time) (n int) {
	l.release(now)
	l.releaseReceived(now)
	for _, u := range l.d.sockets {
		n += l.receiveFrom(u, now)
	}
	empty := uint32(0)
	if n == 0 {
		empty = 1
	}
	l.d.socketEmpty.Store(empty)
	if groups := l.d.groups.sockets.Load(); groups != nil {
		for _, u := range groups.Ready() {
			n += l.receiveFrom(u, now)
		}
	}
	return n
}

func (l *faultUDPLink) receiveFrom(u *udp.Socket, now ucs.Time) (n int) {
	for _, g := range u.Recv() {
		for i := range g.Packets() {
			n++
			l.received(rxSource{from: g.From.AddrPort(), to: u, index: i, tos: g.TOS, ttl: g.TTL, flow: g.Flow}, g.Packet(i), now)
		}
	}
	return n
}

// handlePacket processes a received packet.
//
// Concurrency: the holder of the receive token.
func (l *faultUDPLink) handlePacket(s *rxSource, b []byte, now ucs.Time) {
	d, g := l.d, &l.single
	if len(b) < udp.MinPacket {
		d.own.counts.add(cntDroppedShort, 1)
		return
	}
	s.to.Single(g, s.from, s.index, b)
	g.TOS, g.TTL, g.Flow = s.tos, s.ttl, s.flow
	if s.to.Addr.Addr().IsMulticast() {
		if d.decodeGroupPacket(g, 0, &d.own.rxPacket) {
			d.receiveGroup(&d.own.rxPacket, d.sent(g), now)
		}
		return
	}
	q := d.qps.find(wire.BTH(b).DestQP())
	if q == nil {
		d.own.counts.add(cntDroppedQPN, 1)
		return
	}
	q.acquire()
	q.markMemoryUser()
	q.handleUDPPacket(&d.own.rxPacket, g, 0, now)
	q.transmitAndRelease()
}
