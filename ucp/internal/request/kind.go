package request

// Kind is the kind of operation that a slot holds.
type Kind uint8

// Operations.
const (
	None Kind = iota
	TagSend
	TagSendUint64
	TagSendV
	TagSendSync
	AMSend
	TagRecv
	AMRecv
	AMFetch
	Matched
	Flush
	Fence
	FenceMulti // of several lanes; its parts are Fence
	CancelFrag
	Control
	Put
	PutUint64
	Get
	GetUint64
	Atomic
	Fetch
	RndvRead
	DrainLane // keeps an unreferenced lane open until the replies sent on it are acknowledged
	// NumKinds is the number of kinds.
	NumKinds
)

var kindNames = [NumKinds]string{
	None: "operation", Matched: "operation",
	TagSend: "tag send", TagSendUint64: "tag send", TagSendV: "tag send", TagSendSync: "tag sync send",
	AMSend: "active message", TagRecv: "tag receive", AMRecv: "active message receive", AMFetch: "active message receive",
	Flush: "flush", Fence: "fence", FenceMulti: "fence", CancelFrag: "cancel notice", Control: "control message",
	Put: "put", PutUint64: "put", Get: "get", GetUint64: "get", Atomic: "atomic", Fetch: "fetch",
	RndvRead: "rendezvous read", DrainLane: "lane drain",
}

// String returns the name of the operation in errors.
func (k Kind) String() string { return kindNames[min(k, NumKinds-1)] }

// Sends reports whether k sends a message. Its slot is a sendOp.
func (k Kind) Sends() bool { return k >= TagSend && k <= AMSend }

// Receives reports whether k receives a message into a buffer. Its slot is a recvOp.
func (k Kind) Receives() bool { return k >= TagRecv && k <= AMFetch }
