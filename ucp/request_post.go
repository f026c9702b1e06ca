package ucp

import (
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// start begins the operation in slot i, whose fields the caller has set, and returns its
// request. A refused operation occupies no slot.
func (w *thread) start(i uint32) Request {
	s := &w.slab.slots[i]
	id, op, ep, lane := w.slab.id(i), s.op, s.ep, s.lane
	switch st := w.try(i); st {
	case ucs.OK:
		w.discard(i)
		return Request{}
	case ucs.InProgress:
		return Request{w, id}
	default:
		w.discard(i)
		w.noteFailure(lane, st)
		return w.refuse(op, w.handle(ep), st)
	}
}

// errGone is the reason if an operation finds the peer dead before the
// transport reports it.
var errGone = fmt.Errorf("%w: its memory is gone", ErrPeerFailed)

// noteFailure fails a lane whose peer an operation found dead, so that the next flush fails
// too. If the transport knows of the failure already, it reports it with its own reason.
func (w *thread) noteFailure(lane uint32, st ucs.Status) {
	if st == ucs.PeerFailed && w.lanes[lane].ep.Check(0) == ucs.OK {
		w.failPeer(lane, errGone)
	}
}

// try carries out the operation in slot i as far as possible. If it gets NoResource it is
// added to the lane's pending queue, and try returns InProgress.
func (w *thread) try(i uint32) ucs.Status {
	resume := w.slab.slots[i].op.info().resume
	for {
		st := resume(w, i)
		if st != ucs.NoResource {
			return st
		}
		w.count.Inc(cntPending)
		s := &w.slab.slots[i]
		l := &w.lanes[s.lane]
		ep := l.ep
		if s.bypassesStall() {
			ep = l.transport()
		}
		st = ep.PendingAdd(w.slab.token(i))
		if st == ucs.OK {
			s.flags |= flagPending
			l.pending++
			w.owner.mustWake = true // a transport that connects has timers now
			return ucs.InProgress
		}
		if st != ucs.Busy {
			return st
		}
	}
}

// clearPending notes that the operation in slot i has left its lane's pending queue.
func (w *thread) clearPending(i uint32) {
	if s := &w.slab.slots[i]; s.flags&flagPending != 0 {
		s.flags &^= flagPending
		w.lanes[s.lane].pending--
	}
}

// end completes the operation in slot i with st.
func (w *thread) end(i uint32, st ucs.Status) {
	s := &w.slab.slots[i]
	if st != ucs.OK || s.flags&^flagHasResult != 0 {
		w.endSlow(i, st)
		return
	}
	if s.flags&flagHasResult == 0 {
		w.discard(i)
		return
	}
	s.state = slotDone
}

// discard releases slot i and what a send in it holds.
func (w *thread) discard(i uint32) {
	if s := &w.slab.slots[i]; s.parent != 0 && s.op.sends() {
		w.releaseSend(i)
	}
	w.slab.release(i)
}

// endSlow completes the operation in slot i with st, in any state and with any flags. A
// send first releases its credit and its exposed memory. Then the result goes to the
// parent operation, to the callback and the waiters, or stays in the slot. endSlow may
// move the slots.
//
//go:noinline
func (w *thread) endSlow(i uint32, st ucs.Status) {
	w.clearPending(i)
	if s := &w.slab.slots[i]; s.op == opAMFetch {
		w.prefetchDone(i, st)
		return
	} else if s.op.sends() {
		w.releaseSend(i) // may move the slots
	} else if s.op == opRndvRead {
		w.readCompleted(i, st)
		return
	} else if s.op == opDrainLane {
		w.drainDone(i)
		return
	} else if s.op == opFence && s.flags&flagChild != 0 {
		f := s.parent
		w.slab.release(i)
		w.fencePartDone(f)
		return
	} else if s.op == opControl {
		w.slab.unlink(&w.lanes[s.lane].pendingControl, i)
	}
	w.slab.dropBuffers(i)
	s := &w.slab.slots[i]
	s.status = st
	switch {
	case s.flags&flagChild != 0:
		w.childEnded(i)
	case s.flags&flagNotify != 0:
		w.notify(i)
	case s.flags&flagHasResult != 0:
		s.state = slotDone
	case st == ucs.OK || s.flags&flagReported != 0:
		w.slab.release(i)
	default:
		s.state = slotDone
		if s.ep == 0 {
			w.slab.addUnclaimed(i)
		}
	}
}

// partEnded counts the completion of one of several parts of the operation in slot i.
func (w *thread) partEnded(i uint32, st ucs.Status) {
	s := &w.slab.slots[i]
	s.partsLeft--
	if s.status == ucs.OK {
		s.status = st
	}
}

// childEnded counts the completion of the part in slot i with its parent. The last part
// completes the parent.
func (w *thread) childEnded(i uint32) {
	c := &w.slab.slots[i]
	parent := c.parent
	s := &w.slab.slots[parent]
	if c.status != ucs.OK && s.status == ucs.OK {
		s.status = c.status
		w.saveErr(parent, w.slotErr(i))
	}
	w.slab.release(i)
	s.partsLeft--
	if s.partsLeft == 0 {
		w.end(parent, s.status)
	}
}

// opInfo describes a kind of operation.
type opInfo struct {
	name string
	// resume starts or continues the operation in slot i. It returns OK if the operation is
	// complete. InProgress: an event or a message will complete it. NoResource: it has to
	// wait on the lane's pending queue. Busy: it moved to the end of that queue. Any other
	// status is the operation's result.
	resume func(w *thread, i uint32) ucs.Status
}

// info returns the row of an operation. It is a switch and not a table, because the rows
// refer to functions that call info.
func (k opKind) info() opInfo {
	switch k {
	case opTagSend, opTagSendV, opTagSendUint64:
		return opInfo{"tag send", (*thread).resumeTagSend}
	case opTagSendSync:
		return opInfo{"tag sync send", (*thread).resumeTagSend}
	case opTagRecv:
		return opInfo{name: "tag receive"}
	case opAMRecv, opAMFetch:
		return opInfo{name: "active message receive"}
	case opFlush:
		return opInfo{"flush", (*thread).resumeFlush}
	case opFence:
		return opInfo{"fence", (*thread).resumeFence}
	case opFenceMulti:
		return opInfo{name: "fence"} // only its parts are retried
	case opCancelFrag:
		return opInfo{"cancel notice", (*thread).resumeCancelFrag}
	case opControl:
		return opInfo{"control message", (*thread).resumeControl}
	case opPut:
		return opInfo{"put", (*thread).resumeTransfer}
	case opPutUint64:
		return opInfo{"put", (*thread).resumePutUint64}
	case opGet:
		return opInfo{"get", (*thread).resumeTransfer}
	case opGetUint64:
		return opInfo{"get", (*thread).resumeGetUint64}
	case opAtomic:
		return opInfo{"atomic", (*thread).resumeAtomic}
	case opFetch:
		return opInfo{"fetch", (*thread).resumeFetch}
	case opRndvRead:
		return opInfo{"rendezvous read", (*thread).resumeRead}
	case opDrainLane:
		return opInfo{"lane drain", (*thread).resumeDrain}
	case opAMSend:
		return opInfo{"active message", (*thread).resumeAMSend}
	default:
		return opInfo{name: "operation"}
	}
}
