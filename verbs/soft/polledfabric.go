package soft

import (
	"net/netip"
	"sync"

	"github.com/goucx/goucx/ucs"
)

// polledFabric is the Fabric of a Switch's devices with faults. Each device has a mailbox, and
// empties it when it polls.
type polledFabric struct {
	mu     sync.Mutex
	queues map[netip.AddrPort]*packetQueue
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

// queuedPacket is a packet in a mailbox.
type queuedPacket struct {
	from netip.AddrPort
	b    []byte
}

// maxQueuedPackets is the capacity of a mailbox; further packets are lost.
const maxQueuedPackets = 4096

// Attach creates a device's mailbox.
func (m *polledFabric) Attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time)) {
	m.attach(at, recv, func() {})
}

func (m *polledFabric) attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time), wake func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues == nil {
		m.queues = make(map[netip.AddrPort]*packetQueue)
	}
	m.queues[at] = &packetQueue{recv: recv, wake: wake}
}

// Detach removes the mailbox.
func (m *polledFabric) Detach(at netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.queues, at)
}

// Now returns the time.
func (m *polledFabric) Now() ucs.Time { return ucs.Now() }

// Send adds a copy of b to the receiver's mailbox. It drops b if the mailbox is full or
// missing.
func (m *polledFabric) Send(from, to netip.AddrPort, b []byte) {
	q := m.queue(to)
	if q == nil {
		return
	}
	if q.put(from, b) {
		q.wake()
	}
}

// put adds a copy of b. It returns false if the mailbox is full.
func (q *packetQueue) put(from netip.AddrPort, b []byte) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.packets) >= maxQueuedPackets {
		return false
	}
	var buf []byte
	if last := len(q.free) - 1; last >= 0 {
		buf, q.free = q.free[last][:0], q.free[:last]
	}
	q.packets = append(q.packets, queuedPacket{from, append(buf, b...)})
	return true
}

// hasPackets reports whether packets wait for the device at an address.
func (m *polledFabric) hasPackets(at netip.AddrPort) bool {
	q := m.queue(at)
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.packets) > 0
}

func (m *polledFabric) queue(at netip.AddrPort) *packetQueue {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.queues[at]
}

// poll calls recv for the packets in the mailbox of the device at an address, and
// returns their number.
//
// Concurrency: one goroutine at a time for each address.
func (m *polledFabric) poll(at netip.AddrPort, now ucs.Time) int {
	q := m.queue(at)
	if q == nil {
		return 0
	}
	q.mu.Lock()
	all := q.packets
	q.packets, q.spare = q.spare[:0], nil
	q.mu.Unlock()
	for i := range all {
		q.recv(all[i].from, all[i].b, now)
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
