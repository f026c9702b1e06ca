package arq

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// State is the state of a Sender.
type State uint8

// States of a Sender.
const (
	// Opening: no Accept has arrived.
	Opening State = iota
	// Open: packets are transmitted.
	Open
	// Done: the End was acknowledged.
	Done
	// Failed: the flow failed; see Sender.Reason.
	Failed
	numStates
)

var stateNames = [numStates]string{"opening", "open", "done", "failed"}

// String returns the state in lower case.
func (s State) String() string {
	if s < numStates {
		return stateNames[s]
	}
	return "state?"
}

// Reason is the reason of a failure.
type Reason uint8

// Reasons.
const (
	// TimedOut: the peer did not reply for Config.PeerTimeout.
	TimedOut Reason = iota + 1
	// Rejected: the interface at the target's address has another name.
	Rejected
	// ResetByPeer: the peer does not know the flow any more; messages may be lost.
	ResetByPeer
	// Closed: the peer closed its interface.
	Closed
	// PortClosed: nothing receives at the peer's port.
	PortClosed
	// QPClosed: the peer's queue pair does not exist any more.
	QPClosed
	// DeviceFailed: the own device was removed or has failed.
	DeviceFailed
)

var reasonNames = [...]string{
	"", "it does not answer", "another interface has its address", "it reset the connection", "it closed its interface",
	"its process has ended: its port is closed", "its queue pair is closed", "this side's device was removed or has failed",
}

// String returns the reason as the end of a sentence that begins with "the peer failed: ".
func (r Reason) String() string { return reasonNames[r] }

// Slots that stand for no memory.
const (
	// NoSlot is no slot.
	NoSlot = ^uint32(0)
	// endSlot and endAllSlot are the slots of an End.
	endSlot    = NoSlot - 1
	endAllSlot = NoSlot - 2
)

// EndID reports whether the packet in slot is an End, and returns its reason.
func EndID(slot uint32) (id uint8, ok bool) { return uint8(endSlot - slot), slot-endAllSlot <= 1 }

// txPacket is an unacknowledged packet.
type txPacket struct {
	sentAt ucs.Time // time of the last transmission
	slot   uint32
	tx     uint32 // number of the last transmission
	mark   marks
}

type marks uint8

const (
	arrived       marks = 1 << iota // reported by a selective acknowledgement
	retransmitted                   // transmitted more than once
	lost                            // to be retransmitted
)

// Sender is the sending side of a flow. A slot is the user's number for the memory of a
// packet. It belongs to the flow from Push until HandleAck or Reclaim returns it.
//
// Push accepts messages up to pushLimit. Transmit returns them while the congestion window cwnd
// and the receiver's window allow. ring holds them until they are acknowledged.
//
// Invariant: una <= nextTx <= next, in sequence order. ring holds all packets from una to
// next. Of those before nextTx, each has arrived, is counted in inFlight, or is counted in
// numLost.
//
// Concurrency: one goroutine at a time.
type Sender struct {
	// Fields that a message uses in the usual case.
	next      Seq // number of the next message
	pushLimit Seq // messages before it may be accepted
	nextTx    Seq // packets before it have been transmitted
	una       Seq // packets before it are acknowledged
	to        Flow
	state     State
	ring      []txPacket // packets by sequence number; the length is a power of two
	tx        uint32     // number of transmissions
	ackReqAt  Seq        // a packet from this number on requests an ACK
	due       ucs.Time

	conf      *Config
	cwnd      uint32 // congestion window, in packets
	ssthresh  uint32 // slow-start threshold, in packets
	ackCount  uint32 // packets acknowledged towards the next growth of cwnd
	windowEnd Seq    // the receiver accepts packets before it
	recovery  Seq    // losses before it belong to one loss event
	inFlight  uint32 // packets in flight: transmitted, neither arrived nor lost
	numLost   uint32 // packets that are lost and not yet retransmitted
	firstLost Seq    // no lost packet is before it
	// reordering is the distance in transmissions at which a packet counts as lost.
	// numResent counts retransmissions of lost packets since the last loss event. priorCwnd is
	// cwnd before that event. duplicates is the number that the receiver reported.
	reordering, numResent, priorCwnd, duplicates uint32
	// newest is the newest transmission that is known to have arrived. An ACK that reports
	// only older ones is no round-trip sample, since they may have waited at the receiver.
	newest     uint32
	newestOnce bool // its packet was transmitted once
	newestAt   ucs.Time

	srtt, rttvar time.Duration
	minRTT       time.Duration // shortest round trip
	lastReply    ucs.Time      // time of the last reply; at first, the time of Start
	backoff      uint8
	probes       uint8 // unanswered ones in a row
	reason       Reason
	ended        bool

	// Tag is free for the user.
	Tag uint32
}

// NewSender creates the sending side of a flow whose first packet has number first. Before
// Start it accepts no message and its timer is not set.
func NewSender(c *Config, first Seq) *Sender {
	s := &Sender{conf: c, due: never}
	s.next, s.pushLimit, s.nextTx, s.una, s.windowEnd, s.recovery, s.firstLost, s.ackReqAt = first, first, first, first, first, first, first, first
	s.cwnd, s.ssthresh, s.reordering = c.Initial, c.Window, minReordering
	return s
}

// Start makes the next Tick return SendConnect. From now on messages may be pushed.
func (s *Sender) Start(now ucs.Time) {
	if s.Started() || s.state != Opening {
		return
	}
	s.pushLimit = s.next + Seq(s.conf.Initial)
	s.lastReply, s.due = now, now
}

// Started reports whether Start was called.
func (s *Sender) Started() bool { return s.due != never || s.state != Opening }

// LastReply returns the time of the last reply, at first that of Start.
func (s *Sender) LastReply() ucs.Time { return s.lastReply }

// State returns the state of the flow.
func (s *Sender) State() State { return s.state }

// Reason returns the reason of the failure.
func (s *Sender) Reason() Reason { return s.reason }

// CanPush reports whether a message may be pushed.
//
//hot:bench BenchmarkFlow
func (s *Sender) CanPush() bool { return s.pushLimit.Diff(s.next) > 0 }

// To returns the flow's number at its receiver, 0 until the flow is open.
func (s *Sender) To() Flow { return s.to }

// Next returns the number of the next message.
func (s *Sender) Next() Seq { return s.next }

// Acknowledged reports whether all packets before q are acknowledged.
func (s *Sender) Acknowledged(q Seq) bool { return s.una.Diff(q) >= 0 }

// Idle reports whether everything that was pushed is acknowledged.
func (s *Sender) Idle() bool { return s.una == s.next }

// HasUnacked reports whether packets other than the End are unacknowledged.
func (s *Sender) HasUnacked() bool {
	n := uint32(s.next - s.una)
	return n > 1 || n == 1 && !s.ended
}

// Deadline returns the time before which Tick has nothing to do.
func (s *Sender) Deadline() ucs.Time { return s.due }

// Push accepts a message in slot. The caller has checked CanPush. It transmits what Transmit
// returns.
//
//hot:bench BenchmarkFlow
func (s *Sender) Push(slot uint32) {
	if int(s.next-s.una) >= len(s.ring) {
		s.grow()
	}
	s.ring[int(s.next)&(len(s.ring)-1)] = txPacket{slot: slot}
	s.next++
}

// PushEnd accepts the End of the flow, regardless of CanPush. Nothing may be pushed after it.
func (s *Sender) PushEnd(reason uint8) {
	if s.ended {
		return
	}
	s.ended = true
	s.Push(endSlot - uint32(reason))
	s.pushLimit = s.next
}

// Ended reports whether PushEnd was called.
func (s *Sender) Ended() bool { return s.ended }

//go:noinline
func (s *Sender) grow() {
	old := s.ring
	s.ring = make([]txPacket, max(16, 2*len(old)))
	for q := s.una; q != s.next; q++ {
		s.ring[int(q)&(len(s.ring)-1)] = old[int(q)&(len(old)-1)]
	}
}

// Sendable reports whether Transmit has a packet: a lost one, or one that was pushed and not
// transmitted, if the windows have room for it.
//
//hot:bench BenchmarkFlow
func (s *Sender) Sendable() bool {
	return s.inFlight < s.cwnd && s.state == Open && (s.numLost != 0 || s.nextTx != s.next && s.windowEnd.Diff(s.nextTx) > 0)
}

// HasLost reports whether Transmit would return a lost packet.
func (s *Sender) HasLost() bool { return s.numLost != 0 }

// Transmit returns the next packet to transmit: its slot and the first header word. The
// caller adds the ID of Data to that word. The caller has checked Sendable.
//
//hot:bench BenchmarkFlow
func (s *Sender) Transmit(now ucs.Time) (slot uint32, a uint64) {
	if s.numLost != 0 {
		return s.retransmitLost(now)
	}
	q := s.nextTx
	e := &s.ring[int(q)&(len(s.ring)-1)]
	s.nextTx++
	s.inFlight++
	s.tx++
	e.sentAt, e.tx = now, s.tx
	if q == s.una {
		s.resetTimer(now)
	}
	a = s.word(q, e.slot)
	// The last packet in the window requests an ACK. So does the middle one, so that the
	// window advances before it is used up.
	if q.Diff(s.ackReqAt) >= 0 || s.inFlight >= s.cwnd || s.windowEnd.Diff(s.nextTx) <= 0 {
		s.ackReqAt = q + Seq(s.cwnd+1)/2
		a |= ackReqBit
	}
	return e.slot, a
}

func (s *Sender) word(q Seq, slot uint32) uint64 {
	if id, end := EndID(slot); end {
		return wordA(End, id, s.to, q) | ackReqBit
	}
	return wordA(Data, 0, s.to, q)
}

// retransmitLost retransmits the first lost packet.
//
//go:noinline
func (s *Sender) retransmitLost(now ucs.Time) (slot uint32, a uint64) {
	q := s.firstLost
	if q.Diff(s.una) < 0 {
		q = s.una
	}
	for s.at(q).mark&lost == 0 {
		q++
	}
	s.numLost--
	s.inFlight++
	s.numResent++
	s.firstLost = q + 1
	return s.retransmit(q, now)
}

func (s *Sender) at(q Seq) *txPacket { return &s.ring[int(q)&(len(s.ring)-1)] }

// retransmit retransmits packet q.
func (s *Sender) retransmit(q Seq, now ucs.Time) (slot uint32, a uint64) {
	e := s.at(q)
	s.tx++
	e.sentAt, e.tx = now, s.tx
	e.mark = e.mark&^lost | retransmitted
	a = s.word(q, e.slot)
	if s.numLost == 0 || s.inFlight >= s.cwnd {
		a |= ackReqBit
	}
	return e.slot, a
}

// HandleAccept opens the flow. to is its number at the receiver.
func (s *Sender) HandleAccept(to Flow, window uint8, now ucs.Time) {
	if s.state != Opening {
		return
	}
	s.state, s.to, s.windowEnd = Open, to, s.una+Seq(window)
	if s.backoff <= 1 { // else the Accept may reply to any of several Connects
		s.updateRTT(now.Sub(s.lastReply))
	}
	s.backoff = 0
	s.lastReply, s.probes = now, 0
	s.updatePushLimit()
	s.resetTimer(now)
}

// Fail ends the flow. Reclaim returns its slots.
func (s *Sender) Fail(r Reason) {
	if s.state == Failed || s.state == Done {
		return
	}
	s.state, s.reason = Failed, r
	s.pushLimit, s.due = s.next, never
}

// Reclaim appends the slots of all unacknowledged packets to free, and drops the packets.
func (s *Sender) Reclaim(free []uint32) []uint32 {
	for ; s.una != s.next; s.una++ {
		if e := s.at(s.una); e.mark&arrived == 0 && e.slot < endAllSlot {
			free = append(free, e.slot)
		}
	}
	s.nextTx, s.numLost, s.inFlight, s.ring = s.next, 0, 0, nil
	return free
}

// HandleReset processes the receiver's Reset, which replies to packet q. A receiver is removed
// some time after its End; so if only the End is unacknowledged, the flow is Done.
// Otherwise it fails.
func (s *Sender) HandleReset(q Seq) {
	switch {
	case s.state != Open || q.Diff(s.una) < 0 || q.Diff(s.next) > 0:
	case s.ended && s.next-s.una == 1:
		s.una, s.nextTx, s.inFlight, s.numLost = s.next, s.next, 0, 0
		s.done()
	default:
		s.Fail(ResetByPeer)
	}
}

// CloseCompleteWord returns the first header word of the CloseComplete to send when the flow is Done.
func (s *Sender) CloseCompleteWord() uint64 { return wordA(Control, CloseComplete, s.to, s.next) }

func (s *Sender) done() { s.state, s.due, s.pushLimit = Done, never, s.next }
