package ucp

import "github.com/goucx/goucx/ucs"

// opInfo is what the machinery knows of an operation.
type opInfo struct {
	name string
	// resume tries, or tries again, the operation in slot i from where it
	// stopped. OK: done. InProgress: an event will end it. NoResource: it waits
	// on the lane's pending queue. Anything else: it ended so.
	resume func(w *Worker, i uint32) ucs.Status
}

// info gives the row of an operation. A switch instead of a table: the rows
// refer to functions that themselves come back here.
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
	case opFenceAcross:
		return opInfo{name: "fence"} // its parts are tried
	case opGiveUp:
		return opInfo{"give up", (*Worker).resumeGiveUp}
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
	case opRead:
		return opInfo{"read of a message", (*Worker).resumeRead}
	case opHold:
		return opInfo{"close of a lane", (*Worker).resumeHold}
	case opAMSend:
		return opInfo{"active message", (*Worker).resumeAMSend}
	default:
		return opInfo{name: "operation"}
	}
}
