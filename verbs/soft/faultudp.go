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

	mu   sync.Mutex
	line *faultLine[udpPeer]
	buf  []byte
	due  []held[udpPeer]
}

func newFaultUDP(f *Faults, u *udpPort) *faultUDP {
	return &faultUDP{port: u, line: newFaultLine[udpPeer](f, false, uint64(u.lid()))}
}

// linePrefix is the pseudo header over which the ICRC of packets in the line is computed.
// With it release recognises packets with flipped bits. It sends those with an ICRC over
// linePrefix again, which is wrong on the real path.
var linePrefix = wire.NewPrefix(netip.AddrPortFrom(netip.IPv6Loopback(), 1), netip.AddrPortFrom(netip.IPv6Loopback(), 2))

// put adds a packet.
func (f *faultUDP) put(to *udpPeer, p *packet, now ucs.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := packetRoom(&f.buf, p)
	b = b[:encode(p, b)+wire.ICRCLen]
	linePrefix.Seal(b, 0)
	f.line.put(*to, b, now)
}

// release sends the packets that are due.
func (f *faultUDP) release(now ucs.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for h, ok := f.line.take(now); ok; h, ok = f.line.take(now) {
		if _, intact := linePrefix.Check(h.b, 0); !intact {
			h.dest.tx = linePrefix
		}
		f.due = append(f.due, h)
	}
	var t *train
	var to *udpPeer // peer of t
	for i := range f.due {
		h := &f.due[i]
		var p packet
		if decode(h.b[:len(h.b)-wire.ICRCLen], &p) != wire.FaultNone {
			continue // the flipped bits made it an invalid packet
		}
		if t != nil && (*to != h.dest || !t.add(&p)) {
			t.send()
			t = nil
		}
		if t == nil {
			to = &h.dest
			t = f.port.train(to)
			t.add(&p)
		}
	}
	if t != nil {
		t.send()
	}
	for i := range f.due {
		f.line.give(f.due[i])
	}
	f.due = f.due[:0]
}

// sendFaulty sends the queue pair's pending packets through the device's faults.
func (q *qp) sendFaulty(now ucs.Time) bool {
	f := q.d.faulty
	var p packet
	for q.nextReply(&p) || q.nextRequest(&p) {
		f.put(&q.to.udp, &p, now)
	}
	f.release(now)
	return false
}
