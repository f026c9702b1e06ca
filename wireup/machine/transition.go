package machine

// role is the procedure that a message belongs to. Each has one step function.
type role uint8

const (
	// ignored: the message does not match the state. It is late, or overtook another one.
	ignored role = iota
	// illegal: the peer violated the protocol, and the connection fails.
	illegal
	handshake  // stepOpen, with ThreeWay stepOpenThreeWay
	migration  // stepMigrate
	suspension // stepSuspend
	closing    // stepClose
	closed     // stepClosed
)

// transition is the cell of a message in a state: the role that handles it, and the states that may
// follow. Any message may also leave the state as it is.
type transition struct {
	role role
	next []State
}

var (
	failed = []State{StateFailed}
	over   = []State{StateClosed, StateFailed}
	later  = []State{StateOpen, StateClosed, StateFailed}
)

// transitions is the table of messages. An empty cell is ignored; index 0 is an unknown kind.
// docs/wireup.md has the drawing, testdata/*.txt has a scenario of each procedure.
var transitions = [...][numMsgKinds]transition{
	StateIdle: {
		MsgOpen: {handshake, []State{StateOpen, StateFailed}},
	},
	StateOpening: {
		MsgOpen:        {handshake, later},
		MsgAccept:      {handshake, later},
		MsgOpenCrossed: {handshake, failed},
		MsgReject:      {handshake, failed},
		MsgClose:       {closing, nil},
	},
	StateOpen: {
		0:              {illegal, failed},
		MsgOpen:        {handshake, failed},
		MsgAccept:      {handshake, nil},
		MsgOpenCrossed: {handshake, failed},
		MsgReject:      {handshake, failed},
		MsgReady:       {handshake, []State{StateClosed}},
		MsgMigrate:     {migration, over},
		MsgMigrateAck:  {migration, over},
		MsgMigrateNak:  {migration, []State{StateClosed}},
		MsgSuspend:     {suspension, nil},
		MsgSuspendAck:  {suspension, nil},
		MsgSuspendNak:  {suspension, nil},
		MsgClose:       {closing, []State{StateClosed}},
		MsgCloseAck:    {closing, []State{StateClosed}},
		MsgReset:       {closing, over},
	},
	StateClosed: {
		MsgOpen:  {closed, nil},
		MsgClose: {closed, nil},
	},
	StateFailed: {},
}

// events is the table of the local events. An event that is not in the row is ignored. EventReceive
// is in every row: transitions decides.
var events = [...][numEventKinds]bool{
	StateIdle: {
		EventConnect: true, EventAttachFailed: true, EventMarker: true, EventPeerLost: true,
	},
	StateOpening: {
		EventAttachFailed: true, EventMarker: true, EventClose: true, EventPeerLost: true, EventTick: true,
	},
	StateOpen: {
		EventAttachFailed: true, EventMigrate: true, EventResume: true, EventSuspend: true, EventMarker: true,
		EventClose: true, EventPeerLost: true, EventTick: true, EventDataReceived: true,
	},
	StateClosed: {},
	StateFailed: {},
}

// roleOf returns the role of a received message. A message of another connection is ignored: a late
// one of an earlier connection, or one that overtook the first.
func (m *Machine) roleOf(msg Msg) role {
	kind := msg.Kind
	if kind >= numMsgKinds {
		kind = 0
	}
	first := kind == MsgOpen || kind == MsgAccept || kind == MsgOpenCrossed || kind == MsgReject
	if msg.To != 0 && msg.To != m.conf.Conn || msg.From != m.remote && (m.remote != 0 || !first) {
		return ignored
	}
	return transitions[m.state][kind].role
}
