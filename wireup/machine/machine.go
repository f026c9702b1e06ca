package machine

import (
	"bytes"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Config is what a machine is made with.
type Config struct {
	// Worker is this side's UUID: the smaller one's initiation stands.
	Worker [16]byte
	// Conn names this side's connection; random, never 0.
	Conn uint64
	// Timeout is after how long a message without an answer is sent again.
	// 0: messages are neither lost nor repeated, and come in order.
	Timeout time.Duration
	// Limit is how long it is sent, at least minTries times more, before the peer
	// counts as lost; 0: 10 times Timeout.
	Limit time.Duration
	// TwoStep: a pair has a half on each side (a queue pair), and nothing can be sent
	// in it before both know the other's; see halves.go. Both sides have the same.
	TwoStep bool
}

// State is how far a connection is.
type State uint8

// States of a connection.
const (
	// Idle: nobody has said anything.
	Idle State = iota
	// Opening: this side said hello and has no accept.
	Opening
	// Open: both may send.
	Open
	// Done: both sides have ended, all is read.
	Done
	// Failed: it ended otherwise.
	Failed
)

var stateNames = [...]string{"idle", "opening", "open", "done", "failed"}

// String gives the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state?"
}

// EventKind is what happened.
type EventKind uint8

// Events.
const (
	// Connect: this side wants to send and there is no connection.
	Connect EventKind = iota + 1
	// Hear: Msg came. The pairs that it brings are attached; with TwoStep, where
	// Wants says so, by this side's half, which is ready to receive and to send.
	Hear
	// Unable: Msg came, and the pairs that it brings cannot be attached.
	Unable
	// Grow: this side wants another pair in place of the present one.
	Grow
	// Wake: this side wants to send and is asleep.
	Wake
	// Sleep: this side proposes to sleep.
	Sleep
	// Marker: the reader found a marker in the pair that it reads; Pair is what it
	// names, from the peer's side.
	Marker
	// Close: this side sends no more.
	Close
	// Lost: the peer is gone.
	Lost
	// Tick: time passed; see Deadline.
	Tick
	// Arrived, of use with TwoStep: a message came in Pair, named from this side,
	// whether it is read or not. Only needed for a pair that Awaits names.
	Arrived
)

// Event goes into Step.
type Event struct {
	Kind EventKind
	Msg  Msg
	Pair PairID
	// Busy with Hear: this side does not want to sleep now.
	Busy bool
}

// ActionKind is what to do.
type ActionKind uint8

// Actions.
const (
	// Make: make Pair, of this side's own; with TwoStep this side's half of it.
	Make ActionKind = iota + 1
	// Send: send Msg.
	Send
	// Write: put a marker that names Pair into the pair that is sent in, if any,
	// and send in Pair from now on; None and End: nowhere. The marker names it from
	// this side.
	Write
	// Read: read Pair from now on; None: nothing.
	Read
	// Retire: neither side of this end is in Pair any more; give it back. With
	// TwoStep its name is free at once, but what is acknowledged is kept for as long
	// as either side may repeat its last words there; so are the pairs of Ended.
	Retire
	// Ended: both directions are over; give the connection back with all its pairs.
	Ended
	// Fail: the connection is over, for Reason; give it back as well.
	Fail
	// Join, with TwoStep: the other half of Pair came with the message heard: make
	// this side's ready to receive and to send. Where that cannot be done: Lost.
	Join
)

// Reason says why a connection failed.
type Reason uint8

// Reasons.
const (
	// PeerLost: it is gone, or answers no more.
	PeerLost Reason = iota + 1
	// Refused: it does not take the connection.
	Refused
	// Broken: what it said fits nowhere.
	Broken
	// Stale, with TwoStep: what it opened is over for it, and nothing was sent or
	// read. Whatever waits here may connect anew.
	Stale
)

// Action comes out of Step.
type Action struct {
	Kind   ActionKind
	Msg    Msg
	Pair   PairID
	Reason Reason
}

// Machine is one side's view of a connection. One goroutine at a time uses it.
// It holds no pointers.
type Machine struct {
	conf   Config
	peer   [16]byte
	remote uint64
	state  State

	out, in PairID    // where this side sends and reads
	newest  PairID    // the last one agreed on
	seen    [2]PairID // the last one read of the peer's making, and of this side's
	resume  PairID    // where reading goes on after a marker to None
	offer   PairID    // own offer or initiation without an answer
	made    uint32    // pairs that this side made
	theirs  PairID    // the last one that the peer brought, and
	answer  Msg       // the answer, to be repeated
	nap     PairID    // asked to be left, no answer yet
	asked   PairID    // asked to be left last
	slept   PairID    // left last
	next    PairID    // where this side sends when the peer's half is known to be ready
	joined  PairID    // the last one of this side's making whose other half came
	known   PairID    // the last of those of which the peer has said so, too

	closing  bool // Close waits for an answer to the offer
	saidBye  bool
	lastOut  PairID // where the end marker is
	acked    bool
	heardBye bool
	lastIn   PairID
	inEnded  bool

	deadline ucs.Time
	since    ucs.Time // when tries was 0
	tries    int
}

// New makes a machine in state Idle.
func New(c Config) Machine {
	if c.Limit == 0 {
		c.Limit = 10 * c.Timeout
	}
	return Machine{conf: c}
}

// State tells how far the connection is.
func (m *Machine) State() State { return m.state }

// Out is the pair that this side sends in; None: it sleeps, or has ended.
func (m *Machine) Out() PairID { return m.out }

// In is the pair that this side reads.
func (m *Machine) In() PairID { return m.in }

// Settled reports whether this side sends and reads in one pair and nothing is
// under way.
func (m *Machine) Settled() bool {
	return m.state == Open && m.in == m.out && m.in == m.newest && m.offer == None && m.nap == None && !m.ending()
}

// MayGrow reports whether the event Grow would be followed now.
func (m *Machine) MayGrow() bool { return m.out != None && m.out == m.newest && m.free() }

// free reports whether this side may offer a pair.
func (m *Machine) free() bool {
	return m.state == Open && m.offer == None && m.nap == None && m.next == None && !m.SaidBye() && m.calm()
}

// Holds reports whether this end uses the pair or will. One that a message
// brought and that is not held after Step is given back at once.
func (m *Machine) Holds(p PairID) bool {
	held := m.held()
	return p != None && slices.Contains(held[:], p)
}

// Offering reports whether an offer of this side has no answer yet.
func (m *Machine) Offering() bool { return m.state == Open && m.offer != None }

// SaidBye reports whether this side has ended, HeardBye whether the peer has.
func (m *Machine) SaidBye() bool { return m.saidBye || m.closing }

// HeardBye reports whether the peer sends no more.
func (m *Machine) HeardBye() bool { return m.heardBye }

// PeerEnded reports whether the peer sends no more and all that it sent is read.
func (m *Machine) PeerEnded() bool { return m.heardBye && m.inEnded }

// Remote is the peer's name of the connection; 0: not known yet.
func (m *Machine) Remote() uint64 { return m.remote }

// HalfOpen reports, with TwoStep, whether this side has accepted the connection and
// nothing shows that the peer receives: its hello may name an address that is not its own.
func (m *Machine) HalfOpen() bool {
	return m.state == Open && m.next != None && m.answer.Kind == Accept
}

// Deadline is when a Tick is due; 0: never.
func (m *Machine) Deadline() ucs.Time { return m.deadline }

func (m *Machine) ending() bool { return m.SaidBye() || m.heardBye }

// Step takes an event at a time and appends what is to be done to acts, in
// order. Events that do not fit are passed over, or end the connection where
// they show that the peer is broken.
func (m *Machine) Step(now ucs.Time, ev Event, acts []Action) []Action {
	if m.state == Failed || m.state == Done {
		return m.late(ev, acts)
	}
	s := step{Machine: m, acts: acts, was: m.held()}
	switch ev.Kind {
	case Connect:
		s.connect()
	case Hear:
		s.hear(ev)
	case Unable:
		s.unable(ev.Msg.flip())
	case Grow:
		if m.MayGrow() {
			s.propose()
		}
	case Wake:
		if m.out == None && m.free() {
			s.propose()
		}
	case Sleep:
		s.askNap()
	case Marker:
		s.marker(ev.Pair.Flip())
	case Close:
		s.close()
	case Lost:
		s.fail(PeerLost)
	case Tick:
		s.tick(now)
	case Arrived:
		s.confirm(ev.Pair)
	}
	s.finish(now)
	return s.acts
}

// late answers those who have not heard that the connection is over.
func (m *Machine) late(ev Event, acts []Action) []Action {
	switch {
	case m.state == Failed || ev.Kind != Hear || ev.Msg.From != m.remote:
		return acts
	case ev.Msg.Kind == Hello && m.answer.Kind == Accept && !m.conf.TwoStep:
		return append(acts, Action{Kind: Send, Msg: m.answer})
	case ev.Msg.Kind == Bye:
		return append(acts, Action{Kind: Send, Msg: m.message(ByeAck, None)})
	}
	return acts
}

// calm reports whether the reader has come to the last pair agreed on.
func (m *Machine) calm() bool { return m.resume == None && (m.in == m.newest || m.in == None) }

// Conn is this side's name of the connection.
func (m *Machine) Conn() uint64 { return m.conf.Conn }

// Stands reports whether this side's initiation stands where it crosses with one
// of that worker's, by its name of the connection.
func (m *Machine) Stands(worker [16]byte, conn uint64) bool { return m.smaller(worker, conn) }

// smaller reports whether this side's initiation stands against the peer's.
func (m *Machine) smaller(worker [16]byte, conn uint64) bool {
	if c := bytes.Compare(m.conf.Worker[:], worker[:]); c != 0 {
		return c < 0
	}
	return m.conf.Conn < conn
}

func (m *Machine) message(k Kind, p PairID) Msg {
	return Msg{Kind: k, Worker: m.conf.Worker, From: m.conf.Conn, To: m.remote, Pair: p}
}
