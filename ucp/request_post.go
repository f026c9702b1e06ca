package ucp

import (
	"fmt"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// start begins the operation in slot i, whose fields the caller has set, and returns its
// request. A refused operation occupies no slot.
func (w *thread) start(i uint32) Request {
	s := &w.slab.Slots[i]
	id, op, ep := w.slab.ID(i), s.Op, s.EP
	switch st := w.try(i); st {
	case ucs.OK:
		w.discard(i)
		return Request{}
	case ucs.InProgress:
		return Request{w, id}
	default:
		if w.noteFailure(i, st) {
			return Request{w, id}
		}
		w.discard(i)
		return w.refuse(op, w.handle(ep), st)
	}
}

// errGone is the reason if an operation finds the peer dead before the
// transport reports it.
var errGone = fmt.Errorf("%w: its memory is gone", ErrPeerFailed)

// noteFailure fails the lane of the operation in slot i if that found the peer dead, so that the
// next flush fails too. If the transport knows of the failure already, it reports it with its own
// reason. In that case noteFailure returns true, and the operation awaits the report.
func (w *thread) noteFailure(i uint32, st ucs.Status) bool {
	if st != ucs.PeerFailed {
		return false
	}
	if w.mustAwaitReport(i) {
		return true
	}
	if lane := w.slab.Slots[i].Lane; w.lanes[lane].ep.Check(0) == ucs.OK {
		w.failPeer(lane, errGone)
	}
	return false
}

// try carries out the operation in slot i as far as possible. If it gets NoResource it is
// added to the lane's pending queue, and try returns InProgress.
func (w *thread) try(i uint32) ucs.Status {
	progress := w.operations[w.slab.Slots[i].Op].progress
	for {
		st := progress(w, i)
		if st != ucs.NoResource {
			return st
		}
		w.count.Inc(cntPending)
		s := &w.slab.Slots[i]
		l := &w.lanes[s.Lane]
		ep := l.ep
		if bypassesStall(s) {
			ep = l.transport()
		}
		st = ep.PendingAdd(w.slab.Token(i))
		if st == ucs.OK {
			s.Flags |= request.FlagPending
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
	if s := &w.slab.Slots[i]; s.Flags&request.FlagPending != 0 {
		s.Flags &^= request.FlagPending
		w.lanes[s.Lane].pending--
	}
}

// end completes the operation in slot i with st.
func (w *thread) end(i uint32, st ucs.Status) {
	s := &w.slab.Slots[i]
	if st != ucs.OK || s.Flags&^request.FlagHasResult != 0 {
		w.endSlow(i, st)
		return
	}
	if s.Flags&request.FlagHasResult == 0 {
		w.discard(i)
		return
	}
	s.State = request.StateDone
}

// discard releases slot i and what a send in it holds.
func (w *thread) discard(i uint32) {
	if s := &w.slab.Slots[i]; s.Op.Sends() && request.As[sendOp](s).phase != phaseNew {
		w.releaseSend(i)
	}
	w.slab.release(i)
}

// endSlow completes the operation in slot i with st, in any state and with any flags. The
// operation first releases what it holds. Then the result goes to the parent operation, to
// the callback and the waiters, or stays in the slot. endSlow may move the slots.
//
//go:noinline
func (w *thread) endSlow(i uint32, st ucs.Status) {
	if st == ucs.PeerFailed && w.mustAwaitReport(i) {
		return
	}
	w.clearPending(i)
	if complete := w.operations[w.slab.Slots[i].Op].complete; complete != nil && complete(w, i, st) {
		return
	}
	w.slab.dropBuffers(i)
	s := &w.slab.Slots[i]
	s.Status = st
	switch {
	case s.Flags&request.FlagChild != 0:
		w.childEnded(i)
	case s.Flags&request.FlagNotify != 0:
		w.notify(i)
	case s.Flags&request.FlagHasResult != 0:
		s.State = request.StateDone
	case st == ucs.OK || s.Flags&request.FlagReported != 0:
		w.slab.release(i)
	default:
		s.State = request.StateDone
		if s.EP == 0 {
			w.slab.keepUnclaimed(i)
		}
	}
}

// childEnded counts the completion of the part in slot i with its parent. The last part
// completes the parent.
func (w *thread) childEnded(i uint32) {
	c := request.As[flushOp](&w.slab.Slots[i])
	parent := c.parent
	s := &w.slab.Slots[parent]
	if c.Status != ucs.OK && s.Status == ucs.OK {
		s.Status = c.Status
		w.slab.saveErr(parent, w.slotErr(i))
	}
	w.slab.release(i)
	s.Parts--
	if s.Parts == 0 {
		w.end(parent, s.Status)
	}
}
