package ucp

import "github.com/goucx/goucx/ucs"

// opInfo describes a kind of operation.
type opInfo struct {
	name string
	// resume starts or continues the operation in slot i. It returns OK if the operation is
	// complete. InProgress: an event or a message will complete it. NoResource: it has to
	// wait on the lane's pending queue. Busy: it moved to the end of that queue. Any other
	// status is the operation's result.
	resume func(w *Worker, i uint32) ucs.Status
}

// info returns the row of an operation. It is a switch and not a table, because the rows
// refer to functions that call info.
func (k opKind) info() opInfo {
	switch k {
	case opTagSend, opTagSendV, opTagSendUint64:
		return opInfo{"tag send", (*Worker).resumeTagSend}
	case opTagSendSync:
		return opInfo{"tag sync send", (*Worker).resumeTagSend}
	case opTagRecv:
		return opInfo{name: "tag receive"}
	case opAMRecv, opAMFetch:
		return opInfo{name: "active message receive"}
	case opFlush:
		return opInfo{"flush", (*Worker).resumeFlush}
	case opFence:
		return opInfo{"fence", (*Worker).resumeFence}
	case opFenceMulti:
		return opInfo{name: "fence"} // only its parts are retried
	case opCancelFrag:
		return opInfo{"cancel notice", (*Worker).resumeCancelFrag}
	case opControl:
		return opInfo{"control message", (*Worker).resumeControl}
	case opPut:
		return opInfo{"put", (*Worker).resumeTransfer}
	case opPutUint64:
		return opInfo{"put", (*Worker).resumePutUint64}
	case opGet:
		return opInfo{"get", (*Worker).resumeTransfer}
	case opGetUint64:
		return opInfo{"get", (*Worker).resumeGetUint64}
	case opAtomic:
		return opInfo{"atomic", (*Worker).resumeAtomic}
	case opFetch:
		return opInfo{"fetch", (*Worker).resumeFetch}
	case opRndvRead:
		return opInfo{"rendezvous read", (*Worker).resumeRead}
	case opDrainLane:
		return opInfo{"lane drain", (*Worker).resumeDrain}
	case opAMSend:
		return opInfo{"active message", (*Worker).resumeAMSend}
	default:
		return opInfo{name: "operation"}
	}
}
