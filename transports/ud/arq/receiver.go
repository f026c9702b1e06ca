package arq

import "github.com/goucx/goucx/ucs"

// Verdict is what becomes of a packet that arrived.
type Verdict uint8

// Verdicts.
const (
	// Deliver: it is the next one. Pop may give more.
	Deliver Verdict = iota
	// Hold: it came early, and its slot is the flow's until Pop or Drop gives it.
	Hold
	// Duplicate: it came before.
	Duplicate
	// Beyond: nobody was told that it would be taken.
	Beyond
)

// Receiver is the receiving side of a flow. Slots are as in Sender.
//
// Concurrency: one goroutine at a time.
type Receiver struct {
	next   Seq    // first that is missing
	owed   uint32 // packets in order since the last acknowledgement
	held   uint32 // packets out of order
	twice  uint32 // packets that came again
	window uint8  // last told
	urgent bool   // an acknowledgement goes at once
	ended  bool

	ring  []uint32 // by sequence number, held ones; a power of two
	conf  *Config
	heard ucs.Time
	sure  bool // silence was seen once
	first Seq

	// To is the flow's number at its sender, Own the one here, Peer the user's number
	// of the peer, Tag whatever the user likes.
	To, Own   Flow
	Peer, Tag uint32
}

// NewReceiver makes the receiving side of a flow whose first packet is number
// first.
func NewReceiver(c *Config, first Seq, now ucs.Time) *Receiver {
	return &Receiver{conf: c, next: first, first: first, heard: now, window: uint8(c.Window)}
}

// Next is the number of the first packet that is missing.
func (r *Receiver) Next() Seq { return r.next }

// Held is how many packets wait for an earlier one.
func (r *Receiver) Held() int { return int(r.held) }

// Arrive takes packet q that lies in slot. canHold says whether there is memory
// for one that came early; without it, it is Beyond.
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

// Pop gives the next packet in order that was held.
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
	r.urgent = true // the sender waits for it
	return slot, true
}

// Drop gives all held slots back.
func (r *Receiver) Drop(free []uint32) []uint32 {
	for _, s := range r.ring {
		if s != NoSlot {
			free = append(free, s)
		}
	}
	r.ring, r.held = nil, 0
	return free
}

// End notes that the end was delivered. The flow is known for some time yet: its
// sender may lack the acknowledgement.
func (r *Receiver) End() { r.ended, r.urgent = true, true }

// Ended reports whether End was called: that the flow goes is no news.
func (r *Receiver) Ended() bool { return r.ended }

// Poked is a question whether we are there.
func (r *Receiver) Poked(now ucs.Time) { r.heard, r.sure, r.urgent = now, false, true }

// Owes reports whether an acknowledgement is to be sent, Urgent whether at once.
//
// hot: BenchmarkFlow.
func (r *Receiver) Owes() bool { return r.owed != 0 || r.urgent }

// Urgent: see Owes.
//
// hot: BenchmarkFlow.
func (r *Receiver) Urgent() bool { return r.urgent || r.owed >= r.conf.AckEvery }

// Acknowledge is the head's second word: it tells what arrived, and that window
// more are taken. What is owed is paid with it.
//
// hot: BenchmarkFlow.
func (r *Receiver) Acknowledge(window uint8) uint64 {
	r.owed, r.urgent, r.window = 0, false, window
	return uint64(window) | uint64(r.To)<<8 | uint64(r.next)<<32
}

// Reopen says that a window is open again. An acknowledgement is owed at once where
// the sender was told of next to none.
func (r *Receiver) Reopen(window uint8) {
	if r.window < minWindow && window > r.window {
		r.urgent = true
	}
}

// Selective is what arrived beyond that; false: nothing.
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

// patience is how long nothing may come.
func (r *Receiver) patience() ucs.Time { return ucs.Time(r.conf.Silence + r.conf.KeepAlive) }

// Deadline is when Tick has something to do.
func (r *Receiver) Deadline() ucs.Time { return r.heard + r.patience() }

// Tick reports whether the sender has been silent for so long that it must be
// gone, or has long had what it wants to know after its end. It waits twice, the second time for a question: a process that was stopped
// finds its clock far ahead.
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
