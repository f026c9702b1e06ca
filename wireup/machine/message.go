package machine

// MsgKind is the kind of a connection message.
type MsgKind uint8

// Connection messages.
const (
	// MsgOpen (OPEN): the sender created Pair and sends on it from now on.
	MsgOpen MsgKind = iota + 1
	// MsgAccept (ACCEPT): the sender reads Pair and sends on it. Old, where set, is the sender's own
	// initiation, which it has left for Pair with a marker. Old is passed along as in an OPEN.
	MsgAccept
	// MsgOpenCrossed (OPEN_CROSSED): the sender reads Pair, but its own initiation wins. The receiver
	// switches to the sender's pair when that OPEN arrives.
	MsgOpenCrossed
	// MsgReject (REJECT): the sender does not accept the connection.
	MsgReject
	// MsgMigrate (MIGRATE): the sender created Pair and proposes to move to it. Resume: the sender is
	// suspended. Old is the last pair proposed by the receiver that the sender has replied to.
	MsgMigrate
	// MsgMigrateAck (MIGRATE_ACK): the sender reads Pair, and sends on it unless Closing. Resume: the
	// sender was suspended. Old, where set, is a MIGRATE of the sender that it withdraws.
	MsgMigrateAck
	// MsgMigrateNak (MIGRATE_NAK): the sender does not use Pair. Old as in MIGRATE_ACK.
	MsgMigrateNak
	// MsgSuspend (SUSPEND): the sender proposes that both sides leave Pair and suspend.
	MsgSuspend
	// MsgSuspendAck (SUSPEND_ACK): the sender has left Pair.
	MsgSuspendAck
	// MsgSuspendNak (SUSPEND_NAK): the sender does not leave Pair now.
	MsgSuspendNak
	// MsgClose (CLOSE): the sender sends no more. Pair holds the end marker. None: the sender was
	// suspended.
	MsgClose
	// MsgCloseAck (CLOSE_ACK) acknowledges CLOSE. It is only sent where messages may be lost.
	MsgCloseAck
	// MsgReady (READY), with ThreeWay: both queue pairs of Pair are connected, and the receiver may
	// send. With Pair None it is a probe: a receiver that does not have the connection replies
	// with RESET, one that has it does not reply.
	MsgReady
	// MsgReset (RESET): the sender does not have this connection, or has it no more.
	MsgReset
	numMsgKinds
)

var msgKindNames = [numMsgKinds]string{
	"NONE", "OPEN", "ACCEPT", "OPEN_CROSSED", "REJECT", "MIGRATE", "MIGRATE_ACK", "MIGRATE_NAK",
	"SUSPEND", "SUSPEND_ACK", "SUSPEND_NAK", "CLOSE", "CLOSE_ACK", "READY", "RESET",
}

// String returns the name of the message.
func (k MsgKind) String() string {
	if k < numMsgKinds {
		return msgKindNames[k]
	}
	return "UNKNOWN"
}

// CarriesPair reports whether the message carries pairs. The receiver attaches them before the
// EventReceive; when it cannot, the event is EventAttachFailed. With ThreeWay, Machine.AcceptsPair decides instead.
func (m Msg) CarriesPair() bool {
	return m.Kind == MsgOpen || m.Kind == MsgMigrate || m.Kind == MsgAccept && m.Old != None
}

// CarriesQPInfo reports, with ThreeWay, whether the message carries the sender's QP endpoint info of Pair.
// Each retransmission carries it too.
func (m Msg) CarriesQPInfo() bool {
	return m.Kind == MsgOpen || m.Kind == MsgAccept || m.Kind == MsgMigrate || m.Kind == MsgMigrateAck
}

// Msg is a connection message. Its pairs are named from the side that holds the message: the
// machine translates received ones.
type Msg struct {
	Kind MsgKind
	// Worker is the sender's UUID.
	Worker [16]byte
	// From and To are the sender's and the receiver's connection IDs. To is 0 while the sender
	// does not know it.
	From, To uint64
	Pair     PairID
	Old      PairID
	// Resume: the sender's direction was suspended and continues in Pair.
	Resume bool
	// Closing: the sender will not send on Pair.
	Closing bool
}

// flip translates the pairs of a message from one side's names to the other's.
func (m Msg) flip() Msg {
	m.Pair, m.Old = m.Pair.Flip(), m.Old.Flip()
	return m
}
