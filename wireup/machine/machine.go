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
	// ThreeWay: a pair has a queue pair on each side, and neither side sends on it before both know
	// the peer's QP endpoint info; see threeway.go. Both sides set the same value.
	ThreeWay bool
}

// State is the state of a connection.
type State uint8

// States of a connection.
const (
	// StateIdle: no message was sent or received.
	StateIdle State = iota
	// StateOpening: OPEN was sent and ACCEPT is outstanding.
	StateOpening
	// StateOpen: both sides may send.
	StateOpen
	// StateClosed: both sides have closed, and all data has been read.
	StateClosed
	// StateFailed: the connection ended in any other way.
	StateFailed
)

var stateNames = [...]string{"idle", "opening", "open", "closed", "failed"}

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
	// EventConnect: the local side has data and there is no connection.
	EventConnect EventKind = iota + 1
	// EventReceive: Msg was received. The pairs that it carries are attached. With ThreeWay, where
	// AcceptsPair returned true, the local queue pair exists and is ready to receive and to send.
	EventReceive
	// EventAttachFailed: Msg was received, and the pairs that it carries cannot be attached.
	EventAttachFailed
	// EventMigrate: the local side requests a migration to another pair.
	EventMigrate
	// EventResume: the local side has data and is suspended.
	EventResume
	// EventSuspend: the local side proposes to suspend the connection.
	EventSuspend
	// EventMarker: the receiver read a marker in the pair that it reads. Pair is the pair in the
	// marker, as the peer names it.
	EventMarker
	// EventClose: the local side sends no more.
	EventClose
	// EventPeerLost: the peer has failed.
	EventPeerLost
	// EventTick: the time of Deadline has come.
	EventTick
	// EventDataReceived, for ThreeWay: a message arrived in Pair, as named locally, read or not. It is only
	// needed for the pair that TxPending returns.
	EventDataReceived
	numEventKinds
)

// Event is the input of Step.
type Event struct {
	Kind EventKind
	Msg  Msg
	Pair PairID
	// Busy, with EventReceive: the local side refuses to suspend now.
	Busy bool
}

// ActionKind is the kind of an Action.
type ActionKind uint8

// Actions.
const (
	// ActionCreate: create Pair, of local numbering. With ThreeWay: create the local queue pair of it.
	ActionCreate ActionKind = iota + 1
	// ActionSend: send Msg.
	ActionSend
	// ActionSwitchTx: write a marker that names Pair into the current send pair, if there is one, and send
	// on Pair from now on. None and End: send nowhere. The marker holds the local name.
	ActionSwitchTx
	// ActionSwitchRx: read Pair from now on. None: read nothing.
	ActionSwitchRx
	// ActionRetire: the local side neither sends on Pair nor reads it; release it. With ThreeWay its name
	// is free at once. The queue pair is retained to acknowledge packets for as long as either
	// side may retransmit its last ones. The same holds for the pairs of ActionClose.
	ActionRetire
	// ActionClose: both directions are closed; release the connection with all its pairs.
	ActionClose
	// ActionFail: the connection has failed for Reason; release it with all its pairs.
	ActionFail
	// ActionConnect, with ThreeWay: the received message carries the QP endpoint info of Pair. Connect the
	// local queue pair: make it ready to receive and to send. On failure EventPeerLost follows.
	ActionConnect
)

// Reason is why a connection failed.
type Reason uint8

// Reasons.
const (
	// ReasonPeerLost: the peer is gone or does not reply.
	ReasonPeerLost Reason = iota + 1
	// ReasonRejected: the peer rejected the connection.
	ReasonRejected
	// ReasonProtocolError: the peer violated the protocol.
	ReasonProtocolError
	// ReasonStale, with ThreeWay: the peer no longer has the connection that its OPEN began, and no data
	// was sent or read. Local operations may use a new connection.
	ReasonStale
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

	tx, rx      PairID    // the pairs that the local side sends on and reads
	agreed      PairID    // the last pair that both sides agreed on
	newestRx    [2]PairID // the newest remote pair ([0]) and local pair ([1]) that was read
	rxResume    PairID    // the pair to read after a marker to None
	proposed    PairID    // the local OPEN or MIGRATE without a reply
	created     uint32    // number of local pairs
	lastRemote  PairID    // the last pair that the peer proposed
	lastReply   Msg       // the reply to it, for retransmission
	suspending  PairID    // the pair of the SUSPEND without a reply
	suspendSent PairID    // the pair of the last SUSPEND that was sent
	suspended   PairID    // the last pair that this side suspended
	txPending   PairID    // the send pair once the peer's queue pair is ready
	connected   PairID    // the last local pair whose remote QP info was received
	readyAcked  PairID    // the last of those for which READY was acknowledged

	txState       txState
	lastTx        PairID // the pair that holds the local end marker
	closeReceived bool   // the peer's CLOSE
	lastRx        PairID // the pair in it, which holds the peer's end marker
	rxEnded       bool   // the end marker was read, or the peer was suspended

	deadline   ucs.Time
	retrySince ucs.Time // when tries was 0
	tries      int
	ignored    uint32
}

// New returns a machine in StateIdle.
func New(c Config) Machine {
	if c.Limit == 0 {
		c.Limit = 10 * c.Timeout
	}
	return Machine{conf: c}
}

// State returns the state of the connection.
func (m *Machine) State() State { return m.state }

// TxPair returns the pair that the local side sends on. None: it is suspended or has closed.
func (m *Machine) TxPair() PairID { return m.tx }

// RxPair returns the pair that the local side reads.
func (m *Machine) RxPair() PairID { return m.rx }

// Quiescent reports whether the local side sends on and reads the same pair, and no migration,
// suspension or close is in progress.
func (m *Machine) Quiescent() bool {
	return m.state == StateOpen && m.rx == m.tx && m.rx == m.agreed && m.proposed == None && m.suspending == None &&
		!m.Closing() && !m.closeReceived
}

// CanMigrate reports whether Step would act on EventMigrate now.
func (m *Machine) CanMigrate() bool { return m.tx != None && m.tx == m.agreed && m.canPropose() }

// canPropose reports whether the local side may send a MIGRATE.
func (m *Machine) canPropose() bool {
	return m.state == StateOpen && m.proposed == None && m.suspending == None && m.txPending == None && !m.Closing() && m.rxQuiescent()
}

// Uses reports whether the local side uses pair p or will use it. The caller releases a pair that
// a message carried when Uses returns false after Step.
func (m *Machine) Uses(p PairID) bool {
	held := m.used()
	return p != None && slices.Contains(held[:], p)
}

// Migrating reports whether a local MIGRATE has no reply yet.
func (m *Machine) Migrating() bool { return m.state == StateOpen && m.proposed != None }

// Closing reports whether the local side has closed its sending direction, or will after a reply.
func (m *Machine) Closing() bool { return m.txState != txOpen }

// PeerClosed reports whether the peer has sent CLOSE.
func (m *Machine) PeerClosed() bool { return m.closeReceived }

// PeerDrained reports whether the peer has sent CLOSE and all its data has been read.
func (m *Machine) PeerDrained() bool { return m.closeReceived && m.rxEnded }

// Remote returns the peer's connection ID. 0: it is not known yet.
func (m *Machine) Remote() uint64 { return m.remote }

// HalfOpen reports, with ThreeWay, whether the local side has accepted the connection and the peer
// is not yet known to receive. Until then the address in its OPEN may be forged.
func (m *Machine) HalfOpen() bool {
	return m.state == StateOpen && m.txPending != None && m.lastReply.Kind == MsgAccept
}

// Deadline returns when EventTick is due. 0: never.
func (m *Machine) Deadline() ucs.Time { return m.deadline }

// rxQuiescent reports whether the reader has reached the last pair agreed on.
func (m *Machine) rxQuiescent() bool { return m.rxResume == None && (m.rx == m.agreed || m.rx == None) }

// Conn returns the local connection ID.
func (m *Machine) Conn() uint64 { return m.conf.Conn }

// Ignored returns how many messages and events did not match the state, and had no effect.
func (m *Machine) Ignored() uint32 { return m.ignored }

// WinsCrossing reports whether the local initiation wins against one of the given worker and
// connection ID.
func (m *Machine) WinsCrossing(worker [16]byte, conn uint64) bool {
	if c := bytes.Compare(m.conf.Worker[:], worker[:]); c != 0 {
		return c < 0
	}
	return m.conf.Conn < conn
}

func (m *Machine) newMsg(k MsgKind, p PairID) Msg {
	return Msg{Kind: k, Worker: m.conf.Worker, From: m.conf.Conn, To: m.remote, Pair: p}
}
