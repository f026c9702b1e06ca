package soft

import (
	"net/netip"
	"sync"

	"github.com/goucx/goucx/ucs"
)

// mail is the Fabric of a Switch's devices with faults. Each device has a mailbox, and
// empties it when it polls.
type mail struct {
	mu    sync.Mutex
	boxes map[netip.AddrPort]*mailbox
}

// mailbox holds the packets for a device.
type mailbox struct {
	recv func(from netip.AddrPort, b []byte, now ucs.Time)
	wake func() // called after a packet was added

	mu      sync.Mutex // never held during recv
	letters []letter
	spare   []letter
	free    [][]byte
}

// letter is a packet in a mailbox.
type letter struct {
	from netip.AddrPort
	b    []byte
}

// maxLetters is the capacity of a mailbox; further packets are lost.
const maxLetters = 4096

// Attach creates a device's mailbox.
func (m *mail) Attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time)) {
	m.attach(at, recv, func() {})
}

func (m *mail) attach(at netip.AddrPort, recv func(from netip.AddrPort, b []byte, now ucs.Time), wake func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.boxes == nil {
		m.boxes = make(map[netip.AddrPort]*mailbox)
	}
	m.boxes[at] = &mailbox{recv: recv, wake: wake}
}

// Detach removes the mailbox.
func (m *mail) Detach(at netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.boxes, at)
}

// Now returns the time.
func (m *mail) Now() ucs.Time { return ucs.Now() }

// Send adds a copy of b to the receiver's mailbox. It drops b if the mailbox is full or
// missing.
func (m *mail) Send(from, to netip.AddrPort, b []byte) {
	box := m.box(to)
	if box == nil {
		return
	}
	if box.put(from, b) {
		box.wake()
	}
}

// put adds a copy of b. It returns false if the mailbox is full.
func (box *mailbox) put(from netip.AddrPort, b []byte) bool {
	box.mu.Lock()
	defer box.mu.Unlock()
	if len(box.letters) >= maxLetters {
		return false
	}
	var buf []byte
	if last := len(box.free) - 1; last >= 0 {
		buf, box.free = box.free[last][:0], box.free[:last]
	}
	box.letters = append(box.letters, letter{from, append(buf, b...)})
	return true
}

// waits reports whether packets wait for the device at an address.
func (m *mail) waits(at netip.AddrPort) bool {
	box := m.box(at)
	if box == nil {
		return false
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	return len(box.letters) > 0
}

func (m *mail) box(at netip.AddrPort) *mailbox {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.boxes[at]
}

// poll calls recv for the packets in the mailbox of the device at an address, and
// returns their number.
//
// Concurrency: one goroutine at a time for each address.
func (m *mail) poll(at netip.AddrPort, now ucs.Time) int {
	box := m.box(at)
	if box == nil {
		return 0
	}
	box.mu.Lock()
	all := box.letters
	box.letters, box.spare = box.spare[:0], nil
	box.mu.Unlock()
	for i := range all {
		box.recv(all[i].from, all[i].b, now)
	}
	box.mu.Lock()
	defer box.mu.Unlock()
	for i := range all {
		box.free = append(box.free, all[i].b)
		all[i].b = nil
	}
	box.spare = all[:0]
	return len(all)
}
