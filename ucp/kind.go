package ucp

// opKind is the kind of operation that a slot holds.
type opKind uint8

// Operations.
const (
	opNone opKind = iota
	opTagSend
	opTagSendUint64
	opTagSendV
	opTagSendSync
	opAMSend
	opTagRecv
	opAMRecv
	opAMFetch
	opMatched
	opFlush
	opFence
	opFenceMulti // of several lanes; its parts are opFence
	opCancelFrag
	opControl
	opPut
	opPutUint64
	opGet
	opGetUint64
	opAtomic
	opFetch
	opRndvRead
	opDrainLane // keeps an unreferenced lane open until the replies sent on it are acknowledged
	numOps
)

var opNames = [numOps]string{
	opNone: "operation", opMatched: "operation",
	opTagSend: "tag send", opTagSendUint64: "tag send", opTagSendV: "tag send", opTagSendSync: "tag sync send",
	opAMSend: "active message", opTagRecv: "tag receive", opAMRecv: "active message receive", opAMFetch: "active message receive",
	opFlush: "flush", opFence: "fence", opFenceMulti: "fence", opCancelFrag: "cancel notice", opControl: "control message",
	opPut: "put", opPutUint64: "put", opGet: "get", opGetUint64: "get", opAtomic: "atomic", opFetch: "fetch",
	opRndvRead: "rendezvous read", opDrainLane: "lane drain",
}

// String returns the name of the operation in errors.
func (k opKind) String() string { return opNames[min(k, numOps-1)] }

// sends reports whether k sends a message. Its slot is a sendOp.
func (k opKind) sends() bool { return k >= opTagSend && k <= opAMSend }

// receives reports whether k receives a message into a buffer. Its slot is a recvOp.
func (k opKind) receives() bool { return k >= opTagRecv && k <= opAMFetch }
