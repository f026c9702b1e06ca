package soft

import (
	"fmt"
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

// MulticastFabric is a Fabric that carries datagrams to multicast groups. A group has port
// 4791.
type MulticastFabric interface {
	Fabric
	// Join registers recv to be called with the datagrams to group that get to the device at
	// an address. Send delivers a copy to each member, in the order in which they joined, also
	// to that at the sender's address. Only the members' links may lose a copy.
	Join(group, at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time))
	// Leave removes the registration.
	Leave(group, at netip.AddrPort)
}

// fabricHandler processes a packet that was sent to the address of a device, or to a group.
type fabricHandler func(from, to netip.AddrPort, b []byte, now ucs.Time)

// fabricRoute is the resolved address of a device on a Fabric.
type fabricRoute struct {
	addr   netip.AddrPort
	prefix wire.Prefix
}

// fabricLink is a device's link to a Fabric. It encodes packets one by one.
type fabricLink struct {
	d      *device
	fabric Fabric
	self   netip.AddrPort
	handle fabricHandler // handlePacket, or what adds faults before it
	queue  *packetQueue  // of a polled fabric

	mu  sync.Mutex // guards buf
	buf []byte     // scratch for encoding
}

// attach attaches the link to its fabric, which calls handle for each datagram. A link
// without a fabric is attached to the polled fabric m, which calls wake when there is
// something to poll.
func (l *fabricLink) attach(m *polledFabric, wake func()) {
	if l.fabric != nil {
		l.fabric.Attach(l.self, l.receiver(l.self))
		return
	}
	l.fabric = m
	l.queue = m.attach(l.self, l.receiver(l.self), wake)
}

// receiver returns the function that the fabric calls with the datagrams to an address.
func (l *fabricLink) receiver(to netip.AddrPort) func(netip.AddrPort, []byte, ucs.Time) {
	return func(from netip.AddrPort, b []byte, now ucs.Time) { l.handle(from, to, b, now) }
}

func (l *fabricLink) join(group verbs.GID) error {
	to, err := l.groupAddr(group)
	if err == nil {
		l.fabric.(MulticastFabric).Join(to, l.self, l.receiver(to))
	}
	return err
}

// groupAddr returns the address of a group, which is of the family of the device's.
func (l *fabricLink) groupAddr(group verbs.GID) (netip.AddrPort, error) {
	to := fabricAddr(group, wire.Port)
	if to.Addr().Is4() != l.self.Addr().Is4() {
		return to, fmt.Errorf("multicast group %v from %v, which is of another family: %w", to.Addr(), l.self.Addr(), ucs.ErrUnreachable)
	}
	return to, nil
}

func (l *fabricLink) leave(group verbs.GID) error {
	l.fabric.(MulticastFabric).Leave(fabricAddr(group, wire.Port), l.self)
	return nil
}

func (l *fabricLink) close() error {
	l.fabric.Detach(l.self)
	return nil
}

func (l *fabricLink) resolve(a *verbs.AHAttr) (r route, err error) {
	to := fabricAddr(a.DGID, a.DLID)
	if to.Addr().IsMulticast() {
		to, err = l.groupAddr(a.DGID)
	}
	return route{fabric: fabricRoute{to, wire.NewPrefix(l.self, to)}}, err
}

func (l *fabricLink) send(q *qp, now ucs.Time) bool {
	var p packet
	for to := q.nextWithRoute(&p); to != nil; to = q.nextWithRoute(&p) {
		l.sendOne(to, &p, now)
	}
	return false
}

func (l *fabricLink) sendOne(to *route, p *packet, _ ucs.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fabric.Send(l.self, to.fabric.addr, encodeSealed(&l.buf, p, &to.fabric.prefix))
	return true
}

func (l *fabricLink) sendEncoded(ps []delayedPacket[route]) {
	for i := range ps {
		to := &ps[i].dest.fabric
		to.prefix.Seal(ps[i].b, 0)
		l.fabric.Send(l.self, to.addr, ps[i].b)
	}
}

// encodeSealed encodes p, with an ICRC over prefix, in the scratch memory buf.
func encodeSealed(buf *[]byte, p *packet, prefix *wire.Prefix) []byte {
	*buf = slices.Grow((*buf)[:0], wire.MaxHeaderLen+p.n+wire.Pad(p.n)+wire.ICRCLen)
	b := (*buf)[:cap(*buf)]
	b = b[:p.encode(b)+wire.ICRCLen]
	prefix.Seal(b, 0)
	return b
}

func (l *fabricLink) receive(_ *engine, now ucs.Time) int {
	if l.queue == nil {
		return 0
	}
	return l.queue.poll(now)
}

func (l *fabricLink) hasPackets() bool {
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	return len(l.queue.packets) > 0
}

// handlePacket processes a packet from the Fabric, which calls it for one packet at a
// time.
func (l *fabricLink) handlePacket(from, to netip.AddrPort, b []byte, now ucs.Time) {
	d := l.d
	for _, e := range *d.engines.Load() {
		e.now.Store(int64(now))
	}
	var p packet
	f, id, intact := l.parse(from, to, b, &p)
	switch {
	case !intact:
		d.own.counts.add(cntDroppedICRC, 1)
		return
	case f != 0:
		d.own.counts.add(cntDroppedOpcode, 1)
		return
	}
	p.sgid, p.slid, p.dgid = verbs.GIDOf(from.Addr()), from.Port(), verbs.GIDOf(to.Addr())
	if to != l.self {
		d.receiveGroup(&p, from == l.self, now)
		return
	}
	q := d.qps.find(p.DestQP)
	if q == nil {
		d.own.counts.add(cntDroppedQPN, 1)
		return
	}
	q.acquire()
	q.markMemoryUser()
	switch {
	case q.typ != verbs.UD && q.route.fabric.addr != from && !(q.route.foreign && q.route.fabric.addr.Addr() == from.Addr()):
		q.count(cntDroppedSource, 1)
	case id != 0 && !q.foreign():
		q.count(cntDroppedICRC, 1)
	default:
		q.handlePacket(&p, now)
	}
	q.transmitAndRelease()
}

// parse checks the ICRC of a received packet and decodes it. p's payload points into b.
// intact is false if the checksum is wrong. id is the IPv4 identification that the
// checksum was computed with; soft devices use 0.
func (l *fabricLink) parse(from, to netip.AddrPort, b []byte, p *packet) (f wire.Fault, id uint16, intact bool) {
	if from.Addr().Is4() != to.Addr().Is4() {
		return wire.FaultNone, 0, false
	}
	id, intact = wire.NewPrefix(from, to).Check(b, 0)
	if !intact {
		return wire.FaultNone, 0, false
	}
	return p.decode(b[:len(b)-wire.ICRCLen]), id, true
}

// polledFabric is the Fabric of a Switch's devices with faults. Each device has a packet
// queue, and empties it when it polls.
type polledFabric struct {
	mu     sync.Mutex
	queues map[netip.AddrPort]*packetQueue
	groups map[netip.AddrPort][]groupMember
}

// groupMember is a device in a multicast group.
type groupMember struct {
	at    netip.AddrPort
	queue *packetQueue
	recv  func(from netip.AddrPort, b []byte, now ucs.Time)
}

// packetQueue holds the packets for a device.
type packetQueue struct {
	recv func(from netip.AddrPort, b []byte, now ucs.Time)
	wake func() // called after a packet was added

	mu      sync.Mutex // never held during recv
	packets []queuedPacket
	spare   []queuedPacket
	free    [][]byte
}

// queuedPacket is a packet in a queue.
type queuedPacket struct {
	from netip.AddrPort
	b    []byte
	recv func(from netip.AddrPort, b []byte, now ucs.Time)
}

// maxQueuedPackets is the capacity of a queue; further packets are lost.
const maxQueuedPackets = 4096

// Attach creates a device's queue.
func (m *polledFabric) Attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time)) {
	m.attach(at, recv, func() {})
}

func (m *polledFabric) attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time), wake func()) *packetQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues == nil {
		m.queues = make(map[netip.AddrPort]*packetQueue)
	}
	q := &packetQueue{recv: recv, wake: wake}
	m.queues[at] = q
	return q
}

// Detach removes the queue.
func (m *polledFabric) Detach(at netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues, at)
}

// Join adds the device at an address to a group.
func (m *polledFabric) Join(group, at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.groups == nil {
		m.groups = make(map[netip.AddrPort][]groupMember)
	}
	m.groups[group] = append(slices.Clone(m.groups[group]), groupMember{at, m.queues[at], recv})
}

// Leave removes the device at an address from a group.
func (m *polledFabric) Leave(group, at netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.groups[group] = slices.DeleteFunc(slices.Clone(m.groups[group]), func(g groupMember) bool { return g.at == at })
	if len(m.groups[group]) == 0 {
		delete(m.groups, group)
	}
}

// Now returns the time.
func (m *polledFabric) Now() ucs.Time { return ucs.Now() }

// Send adds a copy of b to the receiver's queue, or to those of a group. It drops b if the
// queue is full or missing.
func (m *polledFabric) Send(from, to netip.AddrPort, b []byte) {
	m.mu.Lock()
	q, group := m.queues[to], m.groups[to]
	m.mu.Unlock()
	if q != nil {
		q.add(from, b, q.recv)
	}
	for _, g := range group {
		g.queue.add(from, b, g.recv)
	}
}

// add adds a copy of b, with which recv will be called.
func (q *packetQueue) add(from netip.AddrPort, b []byte, recv func(from netip.AddrPort, b []byte, now ucs.Time)) {
	q.mu.Lock()
	if len(q.packets) >= maxQueuedPackets {
		q.mu.Unlock()
		return
	}
	var buf []byte
	if last := len(q.free) - 1; last >= 0 {
		buf, q.free = q.free[last][:0], q.free[:last]
	}
	q.packets = append(q.packets, queuedPacket{from, append(buf, b...), recv})
	q.mu.Unlock()
	q.wake()
}

// poll calls recv for the packets in the queue and returns their number.
//
// Concurrency: one goroutine at a time.
func (q *packetQueue) poll(now ucs.Time) int {
	q.mu.Lock()
	all := q.packets
	q.packets, q.spare = q.spare[:0], nil
	q.mu.Unlock()
	for i := range all {
		all[i].recv(all[i].from, all[i].b, now)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range all {
		q.free = append(q.free, all[i].b)
		all[i].b = nil
	}
	q.spare = all[:0]
	return len(all)
}
