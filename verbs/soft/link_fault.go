package soft

import (
	"net/netip"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
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
// them, and passes those that are due to the link below, in batches. Packets that the
// link below delivers one by one (Fabric) pass the Hook too.
type faultLink struct {
	encodedLink
	// deliver processes a packet that passed the Hook.
	deliver func(from netip.AddrPort, b []byte, now ucs.Time)
	wake    func() // called after a packet was sent: it may be delayed

	mu  sync.Mutex // never held during deliver
	buf []byte     // scratch for encoding
	tx  *faultInjector[route]
	rx  *faultInjector[netip.AddrPort]
	due []delayedPacket[route]
}

// newFaultLink wraps below. Devices with equal Faults draw different random numbers if
// their LIDs differ.
func newFaultLink(f *Faults, below encodedLink, lid uint16, wake func()) *faultLink {
	return &faultLink{
		encodedLink: below, wake: wake,
		tx: newFaultInjector[route](f, false, uint64(lid)), rx: newFaultInjector[netip.AddrPort](f, true, uint64(lid)),
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

// received lets the Hook decide about a packet that the link below delivers.
func (l *faultLink) received(from netip.AddrPort, b []byte, now ucs.Time) {
	l.mu.Lock()
	l.rx.put(from, b, now)
	l.mu.Unlock()
	l.releaseReceived(now)
}

// releaseReceived processes the received packets that are due.
func (l *faultLink) releaseReceived(now ucs.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for h, ok := l.rx.take(now); ok; h, ok = l.rx.take(now) {
		l.mu.Unlock()
		l.deliver(h.dest, h.b, now)
		l.mu.Lock()
		l.rx.recycle(h)
	}
}

func (l *faultLink) receive(now ucs.Time) int {
	l.release(now)
	l.releaseReceived(now)
	return l.encodedLink.receive(now)
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
