package machine

import (
	"bytes"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// Config holds the parameters of New.
type Config struct {
	// Worker is the local UUID. In a crossing the initiation of the smaller UUID wins.
	Worker [16]byte
	// Conn is the local connection ID. It is random and never 0.
	Conn uint64
	// Timeout is the retransmission interval of messages without a reply. 0: messages are neither
	// lost nor duplicated, and arrive in order.
	Timeout time.Duration
	// Limit is how long a message is retransmitted before the peer counts as lost. It is
	// retransmitted at least minTries times. 0: 10 times Timeout.
	Limit time.Duration
	// TwoStep: a pair has a queue pair on each side, and neither side sends on it before both know
	// the peer's QP endpoint info; see halves.go. Both sides set the same value.
	TwoStep bool
}

// State is the state of a connection.
type State uint8

// States of a connection.
const (
	// Idle: no message was sent or received.
	Idle State = iota
	// Opening: OPEN was sent and ACCEPT is outstanding.
	Opening
	// Open: both sides may send.
	Open
	// Done: both sides have closed, and all data has been read.
	Done
	// Failed: the connection ended in any other way.
	Failed
)

var stateNames = [...]string{"idle", "opening", "open", "done", "failed"}

// String returns the state in lower case.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state?"
}

// EventKind is the kind of an Event.
type EventKind uint8

// Events.
const (
	// Connect: the local side has data and there is no connection.
	Connect EventKind = iota + 1
	// Hear: Msg was received. The pairs that it carries are attached. With TwoStep, where Wants
	// returns true, the local queue pair exists and is ready to receive and to send.
	Hear
	// Unable: Msg was received, and the pairs that it carries cannot be attached.
	Unable
	// Grow: the local side requests a migration to another pair.
	Grow
	// Wake: the local side has data and is suspended.
	Wake
	// Sleep: the local side proposes to suspend the connection.
	Sleep
	// Marker: the receiver read a marker in the pair that it reads. Pair is the pair in the
	// marker, as the peer names it.
	Marker
	// Close: the local side sends no more.
	Close
	// Lost: the peer has failed.
	Lost
	// Tick: the time of Deadline has come.
	Tick
	// Arrived, for TwoStep: a message arrived in Pair, as named locally, read or not. It is only
	// needed for the pair that Awaits returns.
	Arrived
)

// Event is the input of Step.
type Event struct {
	Kind EventKind
	Msg  Msg
	Pair PairID
	// Busy, with Hear: the local side refuses to suspend now.
	Busy bool
}

// ActionKind is the kind of an Action.
type ActionKind uint8

// Actions.
const (
	// Make: create Pair, of local numbering. With TwoStep: create the local queue pair of it.
	Make ActionKind = iota + 1
	// Send: send Msg.
	Send
	// Write: write a marker that names Pair into the current send pair, if there is one, and send
	// on Pair from now on. None and End: send nowhere. The marker holds the local name.
	Write
	// Read: read Pair from now on. None: read nothing.
	Read
	// Retire: the local side neither sends on Pair nor reads it; release it. With TwoStep its name
	// is free at once. The queue pair is retained to acknowledge packets for as long as either
	// side may retransmit its last ones. The same holds for the pairs of Ended.
	Retire
	// Ended: both directions are closed; release the connection with all its pairs.
	Ended
	// Fail: the connection has failed for Reason; release it with all its pairs.
	Fail
	// Join, with TwoStep: the received message carries the QP endpoint info of Pair. Connect the
	// local queue pair: make it ready to receive and to send. On failure the event Lost follows.
	Join
)

// Reason is why a connection failed.
type Reason uint8

// Reasons.
const (
	// PeerLost: the peer is gone or does not reply.
	PeerLost Reason = iota + 1
	// Refused: the peer rejected the connection.
	Refused
	// Broken: the peer violated the protocol.
	Broken
	// Stale, with TwoStep: the peer no longer has the connection that its OPEN began, and no data
	// was sent or read. Local operations may use a new connection.
	Stale
)

// Action is an output of Step.
type Action struct {
	Kind   ActionKind
	Msg    Msg
	Pair   PairID
	Reason Reason
}

// Machine is the local state of one connection. It is used by one goroutine at a time. It holds no
// pointers.
type Machine struct {
	conf   Config
	peer   [16]byte
	remote uint64
	state  State

	out, in PairID    // the pairs that the local side sends on and reads
	newest  PairID    // the last pair that both sides agreed on
	seen    [2]PairID // the newest remote pair ([0]) and local pair ([1]) that was read
	resume  PairID    // the pair to read after a marker to None
	offer   PairID    // the local OPEN or MIGRATE without a reply
	made    uint32    // number of local pairs
	theirs  PairID    // the last pair that the peer proposed
	answer  Msg       // the reply to it, for retransmission
	nap     PairID    // the pair of the SUSPEND without a reply
	asked   PairID    // the pair of the last SUSPEND that was sent
	slept   PairID    // the last pair that this side suspended
	next    PairID    // the send pair once the peer's queue pair is ready
	joined  PairID    // the last local pair whose remote QP info was received
	known   PairID    // the last of those for which READY was acknowledged

	closing  bool // the event Close waits for a reply
	saidBye  bool
	lastOut  PairID // the pair that holds the end marker
	acked    bool
	heardBye bool
	lastIn   PairID
	inEnded  bool

	deadline ucs.Time
	since    ucs.Time // when tries was 0
	tries    int
}

// New returns a machine in state Idle.
func New(c Config) Machine {
	if c.Limit == 0 {
		c.Limit = 10 * c.Timeout
	}
	return Machine{conf: c}
}

// State returns the state of the connection.
func (m *Machine) State() State { return m.state }

// Out returns the pair that the local side sends on. None: it is suspended or has closed.
func (m *Machine) Out() PairID { return m.out }

// In returns the pair that the local side reads.
func (m *Machine) In() PairID { return m.in }

// Settled reports whether the local side sends on and reads the same pair, and no migration,
// suspension or close is in progress.
func (m *Machine) Settled() bool {
	return m.state == Open && m.in == m.out && m.in == m.newest && m.offer == None && m.nap == None && !m.ending()
}

// MayGrow reports whether Step would act on the event Grow now.
func (m *Machine) MayGrow() bool { return m.out != None && m.out == m.newest && m.free() }

// free reports whether the local side may send a MIGRATE.
func (m *Machine) free() bool {
	return m.state == Open && m.offer == None && m.nap == None && m.next == None && !m.SaidBye() && m.calm()
}

// Holds reports whether the local side uses pair p or will use it. The caller releases a pair that
// a message carried when Holds returns false after Step.
func (m *Machine) Holds(p PairID) bool {
	held := m.held()
	return p != None && slices.Contains(held[:], p)
}

// Offering reports whether a local MIGRATE has no reply yet.
func (m *Machine) Offering() bool { return m.state == Open && m.offer != None }

// SaidBye reports whether the local side has closed its sending direction, or will after a reply.
func (m *Machine) SaidBye() bool { return m.saidBye || m.closing }

// HeardBye reports whether the peer has sent CLOSE.
func (m *Machine) HeardBye() bool { return m.heardBye }

// PeerEnded reports whether the peer has sent CLOSE and all its data has been read.
func (m *Machine) PeerEnded() bool { return m.heardBye && m.inEnded }

// Remote returns the peer's connection ID. 0: it is not known yet.
func (m *Machine) Remote() uint64 { return m.remote }

// HalfOpen reports, with TwoStep, whether the local side has accepted the connection and the peer
// is not yet known to receive. Until then the address in its OPEN may be forged.
func (m *Machine) HalfOpen() bool {
	return m.state == Open && m.next != None && m.answer.Kind == Accept
}

// Deadline returns when the event Tick is due. 0: never.
func (m *Machine) Deadline() ucs.Time { return m.deadline }

func (m *Machine) ending() bool { return m.SaidBye() || m.heardBye }

// Step processes one event and appends the resulting actions to acts, in order. Events that do not
// match the state are ignored, or fail the connection where they prove a protocol violation.
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

// late handles events after the connection has ended: it repeats the replies that the peer may
// have missed.
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

// calm reports whether the reader has reached the last pair agreed on.
func (m *Machine) calm() bool { return m.resume == None && (m.in == m.newest || m.in == None) }

// Conn returns the local connection ID.
func (m *Machine) Conn() uint64 { return m.conf.Conn }

// Stands reports whether the local initiation wins against one of the given worker and connection
// ID.
func (m *Machine) Stands(worker [16]byte, conn uint64) bool { return m.smaller(worker, conn) }

// smaller reports whether the local initiation wins against the peer's.
func (m *Machine) smaller(worker [16]byte, conn uint64) bool {
	if c := bytes.Compare(m.conf.Worker[:], worker[:]); c != 0 {
		return c < 0
	}
	return m.conf.Conn < conn
}

func (m *Machine) message(k Kind, p PairID) Msg {
	return Msg{Kind: k, Worker: m.conf.Worker, From: m.conf.Conn, To: m.remote, Pair: p}
}
