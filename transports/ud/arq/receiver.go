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
	// Beyond: the packet is outside the window, there is no memory to hold it, or the flow
	// has ended.
	Beyond
)

// Receiver is the receiving side of a flow. Slots are as in Sender.
//
// Concurrency: one goroutine at a time.
type Receiver struct {
	next   Seq    // first missing packet
	owed   uint32 // packets received in order since the last ACK
	held   uint32 // packets held out of order
	twice  uint32 // duplicates received
	window uint8  // window last advertised
	urgent bool   // an ACK must be sent at once
	ended  bool

	ring  []uint32 // slots of held packets by sequence number; the length is a power of two
	conf  *Config
	heard ucs.Time
	sure  bool // the time-out has expired once; the sender has one keepalive interval left
	first Seq

	// To is the flow's number at its sender, Own its local number, Peer the user's number
	// of the peer. Tag is free for the user.
	To, Own   Flow
	Peer, Tag uint32
}

// NewReceiver creates the receiving side of a flow whose first packet has number first.
func NewReceiver(c *Config, first Seq, now ucs.Time) *Receiver {
	return &Receiver{conf: c, next: first, first: first, heard: now, window: uint8(c.Window)}
}

// Next returns the number of the first missing packet.
func (r *Receiver) Next() Seq { return r.next }

// Held returns the number of packets held out of order.
func (r *Receiver) Held() int { return int(r.held) }

// Arrive processes packet q in slot. canHold reports whether there is memory to hold an
// out-of-order packet. Without memory, such a packet is Beyond.
//
// hot: BenchmarkFlow.
func (r *Receiver) Arrive(q Seq, slot uint32, asks, canHold bool, now ucs.Time) Verdict {
	r.heard, r.sure = now, false
	if q == r.next && !r.ended {
		r.next++
		r.owed++
		r.urgent = r.urgent || asks
		return Deliver
	}
	return r.early(q, slot, canHold)
}

//go:noinline
func (r *Receiver) early(q Seq, slot uint32, canHold bool) Verdict {
	r.urgent = true
	d := q.Diff(r.next)
	switch {
	case d < 0:
		r.twice++
		return Duplicate
	case d >= MaxWindow || !canHold || r.ended:
		return Beyond
	}
	for int(d) >= len(r.ring) {
		r.grow()
	}
	s := &r.ring[int(q)&(len(r.ring)-1)]
	if *s != NoSlot {
		r.twice++
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
	r.owed++
	r.urgent = true // the sender waits for this ACK
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
func (r *Receiver) End() { r.ended, r.urgent = true, true }

// Ended reports whether End was called.
func (r *Receiver) Ended() bool { return r.ended }

// Poked processes a Poke.
func (r *Receiver) Poked(now ucs.Time) { r.heard, r.sure, r.urgent = now, false, true }

// Owes reports whether an ACK is pending, Urgent whether it must be sent at once.
//
// hot: BenchmarkFlow.
func (r *Receiver) Owes() bool { return r.owed != 0 || r.urgent }

// Urgent: see Owes.
//
// hot: BenchmarkFlow.
func (r *Receiver) Urgent() bool { return r.urgent || r.owed >= r.conf.AckEvery }

// Acknowledge returns the second word of a header: an ACK of what has arrived, and the
// window. It clears the pending ACK.
//
// hot: BenchmarkFlow.
func (r *Receiver) Acknowledge(window uint8) uint64 {
	r.owed, r.urgent, r.window = 0, false, window
	return uint64(window) | uint64(r.To)<<8 | uint64(r.next)<<32
}

// Reopen makes an ACK urgent if the window grows and the window last advertised was nearly
// closed.
func (r *Receiver) Reopen(window uint8) {
	if r.window < minWindow && window > r.window {
		r.urgent = true
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

// patience returns the time without packets after which Tick suspects the sender.
func (r *Receiver) patience() ucs.Time { return ucs.Time(r.conf.Silence + r.conf.KeepAlive) }

// Deadline returns the time before which Tick has nothing to do.
func (r *Receiver) Deadline() ucs.Time { return r.heard + r.patience() }

// Tick reports whether the flow can be removed: the sender has been silent too long, or has
// ended the flow long ago. The first time that the deadline passes, Tick only extends it by
// the keepalive interval. So a process that was stopped, and finds its clock far ahead,
// has time to receive the sender's next probe.
func (r *Receiver) Tick(now ucs.Time) (gone bool) {
	if now < r.Deadline() {
		return false
	}
	if r.sure {
		return true
	}
	r.sure = true
	r.heard = now - r.patience() + ucs.Time(r.conf.KeepAlive)
	return false
}
