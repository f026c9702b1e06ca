package soft

import (
	"net/netip"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// faultUDP injects faults into the packets of a UDP device. It decides for each packet,
// and sends the remaining ones in segment batches.
type faultUDP struct {
	port *udpPort

	mu       sync.Mutex
	injector *faultInjector[udpPeer]
	buf      []byte
	due      []delayedPacket[udpPeer]
}

func newFaultUDP(f *Faults, u *udpPort) *faultUDP {
	return &faultUDP{port: u, injector: newFaultInjector[udpPeer](f, false, uint64(u.lid()))}
}

// faultPrefix is the pseudo header over which the ICRC of packets in the line is computed.
// With it release recognises packets with flipped bits. It sends those with an ICRC over
// faultPrefix again, which is wrong on the real path.
var faultPrefix = wire.NewPrefix(netip.AddrPortFrom(netip.IPv6Loopback(), 1), netip.AddrPortFrom(netip.IPv6Loopback(), 2))

// put adds a packet.
func (f *faultUDP) put(to *udpPeer, p *packet, now ucs.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := packetBuf(&f.buf, p)
	b = b[:p.encode(b)+wire.ICRCLen]
	faultPrefix.Seal(b, 0)
	f.injector.put(*to, b, now)
}

// release sends the packets that are due.
func (f *faultUDP) release(now ucs.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h, ok := f.injector.take(now); ok; h, ok = f.injector.take(now) {
		if _, intact := faultPrefix.Check(h.b, 0); !intact {
			h.dest.prefix = faultPrefix
		}
		f.due = append(f.due, h)
	}
	var t *segmentBatch
	var to *udpPeer // peer of t
	for i := range f.due {
		h := &f.due[i]
		var p packet
		if p.decode(h.b[:len(h.b)-wire.ICRCLen]) != wire.FaultNone {
			continue // the flipped bits made it an invalid packet
		}
		if t != nil && (*to != h.dest || !t.add(&p)) {
			t.send()
			t = nil
		}
		if t == nil {
			to = &h.dest
			t = f.port.beginBatch(to)
			t.add(&p)
		}
	}
	if t != nil {
		t.send()
	}
	for i := range f.due {
		f.injector.recycle(f.due[i])
	}
	f.due = f.due[:0]
}

// sendFaulty sends the queue pair's pending packets through the device's faults.
func (q *qp) sendFaulty(now ucs.Time) bool {
	f := q.d.faulty
	var p packet
	for q.nextResponse(&p) || q.nextAck(&p) || q.nextRequest(&p) {
		f.put(&q.route.udp, &p, now)
	}
	f.release(now)
	return false
}
