package arq

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// State is how far a flow's sender is.
type State uint8

// States of a Sender.
const (
	// Opening: no accept has come.
	Opening State = iota
	// Open: packets go out.
	Open
	// Done: the end was acknowledged.
	Done
	// Failed: see Reason.
	Failed
	numStates
)

var stateNames = [numStates]string{"opening", "open", "done", "failed"}

// String gives the state in lower case.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "state?"
}

// Reason says why a flow failed.
type Reason uint8

// Reasons.
const (
	// Silent: the peer answered nothing for Config.Silence.
	Silent Reason = iota + 1
	// Refused: nobody of that name is there.
	Refused
	// Forgotten: the peer does not know the flow any more, and may not have got all.
	Forgotten
	// Closed: the peer closed.
	Closed
)

var reasonNames = [...]string{"", "it does not answer", "it is not there any more", "it has given the connection up", "it closed"}

// String gives the reason as the end of "the peer failed: ".
func (r Reason) String() string { return reasonNames[r] }

// Slots that stand for no memory.
const (
	// NoSlot is no slot.
	NoSlot = ^uint32(0)
	// endSlot and endAllSlot are an End's.
	endSlot    = NoSlot - 1
	endAllSlot = NoSlot - 2
)

// EndID tells whether a packet that is to be sent is an End, and its reason.
func EndID(slot uint32) (id uint8, ok bool) { return uint8(endSlot - slot), slot-endAllSlot <= 1 }

// sent is a packet that is not acknowledged.
type sent struct {
	at   ucs.Time // when it was transmitted last
	slot uint32
	tx   uint32 // the number of that transmission
	mark marks
}

type marks uint8

const (
	arrived marks = 1 << iota // by a selective acknowledgement
	again                     // transmitted more than once
	lost                      // to be transmitted again
)

// Sender is the sending side of a flow. Slots are the user's names of the memory
// that packets lie in; a slot is the flow's from Push until Acked gives it back.
//
// Concurrency: one goroutine at a time.
type Sender struct {
	// What a message in the usual case touches.
	next  Seq // of the next message
	limit Seq // messages before it may be accepted
	sent  Seq // packets before it were transmitted
	una   Seq // packets before it are acknowledged
	to    Flow
	state State
	ring  []sent // by sequence number; a power of two
	tx    uint32 // transmissions so far
	askAt Seq    // packet that asks for an acknowledgement
	due   ucs.Time

	conf    *Config
	cwnd    uint32 // packets that the network is believed to hold
	slow    uint32 // cwnd up to which it doubles
	credit  uint32
	edge    Seq    // packets before it are taken by the receiver
	recover Seq    // until it is acknowledged, losses are of one event
	flying  uint32 // transmitted, neither arrived nor lost
	missing uint32 // lost
	resend  Seq    // no lost packet is before it
	// Packets may overtake one by so many. repeated went again since the last event,
	// before which the window was prior; the receiver had twice more than once.
	reordering, repeated, prior, twice uint32
	// newest is the last transmission that is known to have arrived. What was sent
	// before it may have waited at the receiver, and says nothing of round trips.
	newest  uint32
	newOnce bool // its packet went once
	newAt   ucs.Time

	srtt, rttvar time.Duration
	least        time.Duration // shortest round trip
	heard        ucs.Time      // last sign that the receiver gets what we send
	backoff      uint8
	probes       uint8 // without an answer
	reason       Reason
	ended        bool

	// Tag is the user's, whatever it likes.
	Tag uint32
}

// NewSender makes the sending side of a flow whose first packet is number first.
// It has no room, and asks for nothing, before Start.
func NewSender(c *Config, first Seq) *Sender {
	s := &Sender{conf: c, due: never}
	s.next, s.limit, s.sent, s.una, s.edge, s.recover, s.resend, s.askAt = first, first, first, first, first, first, first, first
	s.cwnd, s.slow, s.reordering = c.Initial, c.Window, minReordering
	return s
}

// Start has the flow opened. Messages may be pushed from now on.
func (s *Sender) Start(now ucs.Time) {
	if s.Started() || s.state != Opening {
		return
	}
	s.limit = s.next + Seq(s.conf.Initial)
	s.heard, s.due = now, now
}

// Started reports whether Start was called.
func (s *Sender) Started() bool { return s.due != never || s.state != Opening }

// State is how far the flow is.
func (s *Sender) State() State { return s.state }

// Reason is why it failed.
func (s *Sender) Reason() Reason { return s.reason }

// Room reports whether a message may be pushed.
//
// hot: BenchmarkFlow.
func (s *Sender) Room() bool { return s.limit.Diff(s.next) > 0 }

// To is the flow's number at its receiver, 0 until it is open.
func (s *Sender) To() Flow { return s.to }

// Next is the number that the next message gets. All before it have arrived when
// Acknowledged says so.
func (s *Sender) Next() Seq { return s.next }

// Acknowledged reports whether all before q have arrived.
func (s *Sender) Acknowledged(q Seq) bool { return s.una.Diff(q) >= 0 }

// Idle reports whether everything that was pushed is acknowledged.
func (s *Sender) Idle() bool { return s.una == s.next }

// Unread reports whether messages, beside the end, are not acknowledged.
func (s *Sender) Unread() bool {
	n := uint32(s.next - s.una)
	return n > 1 || n == 1 && !s.ended
}

// Deadline is when Tick has something to do.
func (s *Sender) Deadline() ucs.Time { return s.due }

// Push enters a message; the caller has seen Room, and transmits what Transmit
// gives.
//
// hot: BenchmarkFlow.
func (s *Sender) Push(slot uint32) {
	if int(s.next-s.una) >= len(s.ring) {
		s.grow()
	}
	s.ring[int(s.next)&(len(s.ring)-1)] = sent{slot: slot}
	s.next++
}

// PushEnd enters the end of the flow, whether there is room or not. Nothing may be
// pushed after it.
func (s *Sender) PushEnd(reason uint8) {
	if s.ended {
		return
	}
	s.ended = true
	s.Push(endSlot - uint32(reason))
	s.limit = s.next
}

// Ended reports whether PushEnd was called.
func (s *Sender) Ended() bool { return s.ended }

//go:noinline
func (s *Sender) grow() {
	old := s.ring
	s.ring = make([]sent, max(16, 2*len(old)))
	for q := s.una; q != s.next; q++ {
		s.ring[int(q)&(len(s.ring)-1)] = old[int(q)&(len(old)-1)]
	}
}

// Sendable reports whether Transmit has a packet: pushed and not yet sent, or
// lost, and the network has room for it.
//
// hot: BenchmarkFlow.
func (s *Sender) Sendable() bool {
	return s.flying < s.cwnd && s.state == Open && (s.missing != 0 || s.sent != s.next && s.edge.Diff(s.sent) > 0)
}

// Missing reports whether Transmit would give a packet that was lost.
func (s *Sender) Missing() bool { return s.missing != 0 }

// Transmit gives the next packet to send: its slot, and the head's first word with
// the user's or EndID's id still to be put in. The caller has seen Sendable.
//
// hot: BenchmarkFlow.
func (s *Sender) Transmit(now ucs.Time) (slot uint32, a uint64) {
	if s.missing != 0 {
		return s.again(now)
	}
	q := s.sent
	e := &s.ring[int(q)&(len(s.ring)-1)]
	s.sent++
	s.flying++
	s.tx++
	e.at, e.tx = now, s.tx
	if q == s.una {
		s.wait(now)
	}
	a = s.word(q, e.slot)
	// The last that the window takes asks, and so does the middle one, so that the
	// window goes on before it is used up.
	if q.Diff(s.askAt) >= 0 || s.flying >= s.cwnd || s.edge.Diff(s.sent) <= 0 {
		s.askAt = q + Seq(s.cwnd+1)/2
		a |= askBit
	}
	return e.slot, a
}

func (s *Sender) word(q Seq, slot uint32) uint64 {
	if id, end := EndID(slot); end {
		return wordA(End, id, s.to, q) | askBit
	}
	return wordA(Data, 0, s.to, q)
}

// again gives the first packet that was lost.
//
//go:noinline
func (s *Sender) again(now ucs.Time) (slot uint32, a uint64) {
	q := s.resend
	if q.Diff(s.una) < 0 {
		q = s.una
	}
	for s.at(q).mark&lost == 0 {
		q++
	}
	s.missing--
	s.flying++
	s.repeated++
	s.resend = q + 1
	return s.repeat(q, now)
}

func (s *Sender) at(q Seq) *sent { return &s.ring[int(q)&(len(s.ring)-1)] }

// repeat transmits packet q anew.
func (s *Sender) repeat(q Seq, now ucs.Time) (slot uint32, a uint64) {
	e := s.at(q)
	s.tx++
	e.at, e.tx = now, s.tx
	e.mark = e.mark&^lost | again
	a = s.word(q, e.slot)
	if s.missing == 0 || s.flying >= s.cwnd {
		a |= askBit
	}
	return e.slot, a
}

// Accepted opens the flow: the receiver calls it to.
func (s *Sender) Accepted(to Flow, window uint8, now ucs.Time) {
	if s.state != Opening {
		return
	}
	s.state, s.to, s.edge = Open, to, s.una+Seq(window)
	if s.backoff <= 1 { // else it may be the answer to any of the questions
		s.measure(now.Sub(s.heard))
	}
	s.backoff = 0
	s.alive(now)
	s.admit()
	s.wait(now)
}

// Fail ends the flow. Reclaim gives its slots back.
func (s *Sender) Fail(r Reason) {
	if s.state == Failed || s.state == Done {
		return
	}
	s.state, s.reason = Failed, r
	s.limit, s.due = s.next, never
}

// Reclaim gives the slots of a failed flow back.
func (s *Sender) Reclaim(free []uint32) []uint32 {
	for ; s.una != s.next; s.una++ {
		if e := s.at(s.una); e.mark&arrived == 0 && e.slot < endAllSlot {
			free = append(free, e.slot)
		}
	}
	s.sent, s.missing, s.flying, s.ring = s.next, 0, 0, nil
	return free
}

// Unknown is the receiver's word that it has no such flow, answering packet q. It
// forgets a flow some time after its end; before that the flow is lost.
func (s *Sender) Unknown(q Seq) {
	switch {
	case s.state != Open || q.Diff(s.una) < 0 || q.Diff(s.next) > 0:
	case s.ended && s.next-s.una == 1:
		s.una, s.sent, s.flying, s.missing = s.next, s.next, 0, 0
		s.finish()
	default:
		s.Fail(Forgotten)
	}
}

// Farewell is the first word of the packet that goes when the flow is Done.
func (s *Sender) Farewell() uint64 { return wordA(Control, Farewell, s.to, s.next) }

func (s *Sender) finish() { s.state, s.due, s.limit = Done, never, s.next }
