package ucp

import "github.com/goucx/goucx/ucs"

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

// operation describes how an operation is carried out. It serves the slow paths: what runs for each
// packet, and short completions, call the functions themselves. docs/requests.md has the
// states of each operation. A nil function means that there is nothing to do.
type operation struct {
	// progress starts or continues the operation in slot i. It returns OK if the operation is
	// complete. InProgress: an event or a message will complete it. NoResource: it has to
	// wait on the lane's pending queue. Busy: it moved to the end of that queue. Any other
	// status is the operation's result.
	progress func(w *thread, i uint32) ucs.Status
	// complete releases what the operation in slot i, which completes with st, holds beside the
	// slot. If it returns true it has released the slot too, and nothing else is notified.
	complete func(w *thread, i uint32, st ucs.Status) bool
	// cancel cancels the operation in slot i, whatever the peer does.
	cancel func(w *thread, i uint32)
}

// operations has the descriptor of each kind. Code reaches it by thread.operations, because the
// functions of the descriptors look other descriptors up: a direct reference would be an
// initialization cycle.
var operations = [numOps]operation{
	opTagSend:       tagSendOperation,
	opTagSendUint64: tagSendOperation,
	opTagSendV:      tagSendOperation,
	opTagSendSync:   tagSendOperation,
	opAMSend:        amSendOperation,
	opTagRecv:       recvOperation,
	opAMRecv:        recvOperation,
	opAMFetch:       prefetchOperation,
	opFlush:         flushOperation,
	opFence:         fenceOperation,
	opCancelFrag:    cancelFragOperation,
	opControl:       controlOperation,
	opPut:           transferOperation,
	opGet:           transferOperation,
	opPutUint64:     putUint64Operation,
	opGetUint64:     getUint64Operation,
	opAtomic:        atomicOperation,
	opFetch:         fetchOperation,
	opRndvRead:      readOperation,
	opDrainLane:     drainOperation,
}
