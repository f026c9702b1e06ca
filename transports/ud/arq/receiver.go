package arq

import "github.com/goucx/goucx/ucs"

// Verdict is the result of Receiver.Arrive.
type Verdict uint8

// Verdicts.
const (
	// Deliver: the packet is the next one. Pop may return further ones.
	Deliver Verdict = iota
	// Hold: the packet is out of order. Its slot belongs to the flow until Pop or Drop.
	Hold
	// Duplicate: the packet has been received before.
	Duplicate
	// OutOfWindow: the packet is outside the window, there is no memory to hold it, or the flow
	// has ended.
	OutOfWindow
)

// Receiver is the receiving side of a flow. Slots are as in Sender.
//
// Concurrency: one goroutine at a time.
type Receiver struct {
	next       Seq    // first missing packet
	unacked    uint32 // packets received in order since the last ACK
	held       uint32 // packets held out of order
	duplicates uint32 // duplicates received
	advertised uint8  // window last advertised
	ackNow     bool   // an ACK must be sent at once
	ended      bool

	ring      []uint32 // slots of held packets by sequence number; the length is a power of two
	conf      *Config
	lastRecv  ucs.Time
	suspected bool // the time-out has expired once; the sender has one keepalive interval left
	first     Seq

	// Remote is the flow's number at its sender, Local its local number, Peer the user's number
	// of the peer. Tag is free for the user.
	Remote, Local Flow
	Peer, Tag     uint32
}

// NewReceiver creates the receiving side of a flow whose first packet has number first.
func NewReceiver(c *Config, first Seq, now ucs.Time) *Receiver {
	return &Receiver{conf: c, next: first, first: first, lastRecv: now, advertised: uint8(c.Window)}
}

// LastRecv returns the time of the last packet.
func (r *Receiver) LastRecv() ucs.Time { return r.lastRecv }

// Held returns the number of packets held out of order.
func (r *Receiver) Held() int { return int(r.held) }

// Arrive processes packet q in slot. canHold reports whether there is memory to hold an
// out-of-order packet. Without memory, such a packet is OutOfWindow.
//
//hot:bench BenchmarkFlow
func (r *Receiver) Arrive(q Seq, slot uint32, ackReq, canHold bool, now ucs.Time) Verdict {
	r.lastRecv, r.suspected = now, false
	if q == r.next && !r.ended {
		r.next++
		r.unacked++
		r.ackNow = r.ackNow || ackReq
		return Deliver
	}
	return r.arriveOutOfOrder(q, slot, canHold)
}

//go:noinline
func (r *Receiver) arriveOutOfOrder(q Seq, slot uint32, canHold bool) Verdict {
	r.ackNow = true
	d := q.Diff(r.next)
	switch {
	case d < 0:
		r.duplicates++
		return Duplicate
	case d >= MaxWindow || !canHold || r.ended:
		return OutOfWindow
	}
	for int(d) >= len(r.ring) {
		r.grow()
	}
	s := &r.ring[int(q)&(len(r.ring)-1)]
	if *s != NoSlot {
		r.duplicates++
		return Duplicate
	}
	*s = slot
	r.held++
	return Hold
}

func (r *Receiver) grow() {
	old := r.ring
	r.ring = make([]uint32, max(16, 2*len(old)))
	for i := range r.ring {
		r.ring[i] = NoSlot
	}
	for i := range old {
		q := r.next + Seq(i)
		r.ring[int(q)&(len(r.ring)-1)] = old[int(q)&(len(old)-1)]
	}
}

// Pop returns the slot of the next packet in order that was held.
func (r *Receiver) Pop() (slot uint32, ok bool) {
	if r.held == 0 {
		return 0, false
	}
	s := &r.ring[int(r.next)&(len(r.ring)-1)]
	if slot = *s; slot == NoSlot {
		return 0, false
	}
	*s = NoSlot
	r.held--
	r.next++
	r.unacked++
	r.ackNow = true // the sender waits for this ACK
	return slot, true
}

// Drop appends all held slots to free.
func (r *Receiver) Drop(free []uint32) []uint32 {
	for _, s := range r.ring {
		if s != NoSlot {
			free = append(free, s)
		}
	}
	r.ring, r.held = nil, 0
	return free
}

// End records that the End was delivered. The flow is kept, since its sender may not have
// received the ACK and may retransmit the End.
func (r *Receiver) End() { r.ended, r.ackNow = true, true }

// Ended reports whether End was called.
func (r *Receiver) Ended() bool { return r.ended }

// HandleProbe processes a Probe.
func (r *Receiver) HandleProbe(now ucs.Time) { r.lastRecv, r.suspected, r.ackNow = now, false, true }

// AckPending reports whether an ACK is pending.
//
//hot:bench BenchmarkFlow
func (r *Receiver) AckPending() bool { return r.unacked != 0 || r.ackNow }

// AckUrgent reports whether an ACK is pending that must be sent at once.
//
//hot:bench BenchmarkFlow
func (r *Receiver) AckUrgent() bool { return r.ackNow || r.unacked >= r.conf.AckEvery }

// AckWord returns the second word of a header: an ACK of what has arrived, and the
// window. It clears the pending ACK.
//
//hot:bench BenchmarkFlow
func (r *Receiver) AckWord(window uint8) uint64 {
	r.unacked, r.ackNow, r.advertised = 0, false, window
	return uint64(window) | uint64(r.Remote)<<8 | uint64(r.next)<<32
}

// WindowGrew makes an ACK urgent if the window grows and the window last advertised was nearly
// closed.
func (r *Receiver) WindowGrew(window uint8) {
	if r.advertised < minWindow && window > r.advertised {
		r.ackNow = true
	}
}

// Selective returns the packets that arrived after the first missing one. It returns false
// if there are none.
func (r *Receiver) Selective() (s Selective, ok bool) {
	if r.held == 0 {
		return s, false
	}
	for i := 1; i < len(r.ring); i++ {
		if r.ring[(int(r.next)+i)&(len(r.ring)-1)] != NoSlot {
			s[(i-1)/64] |= 1 << ((i - 1) % 64)
		}
	}
	return s, true
}

// timeout returns the time without packets after which Tick suspects the sender.
func (r *Receiver) timeout() ucs.Time { return ucs.Time(r.conf.PeerTimeout + r.conf.KeepAlive) }

// Deadline returns the time before which Tick has nothing to do.
func (r *Receiver) Deadline() ucs.Time { return r.lastRecv + r.timeout() }

// Tick reports whether the flow can be removed: the sender has been silent too long, or has
// ended the flow long ago. The first time that the deadline passes, Tick only extends it by
// the keepalive interval. So a process that was stopped, and finds its clock far ahead,
// has time to receive the sender's next probe.
func (r *Receiver) Tick(now ucs.Time) (timedOut bool) {
	if now < r.Deadline() {
		return false
	}
	if r.suspected {
		return true
	}
	r.suspected = true
	r.lastRecv = now - r.timeout() + ucs.Time(r.conf.KeepAlive)
	return false
}
