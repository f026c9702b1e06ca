package ucp

import (
	"slices"

	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// drainReplies keeps unreferenced lane i open until the replies sent on it are
// acknowledged, and reports whether that is needed. Closing it earlier would hide a
// lost reply, and the requester would hang. It posts a flush, which counts as a use of
// the lane and so delays the close.
func (w *thread) drainReplies(i uint32) bool {
	if w.closing || w.lanes[i].state == laneFailed || !slices.ContainsFunc(w.rxConns, func(rx *rxConn) bool { return rx.hasReplyOn(i) }) {
		return false
	}
	c := w.slab.Alloc(request.DrainLane)
	s := &w.slab.Slots[c]
	s.Lane, s.Flags = i, request.FlagReported
	w.lanes[i].use()
	st := w.try(c)
	if st == ucs.InProgress {
		return true
	}
	w.lanes[i].unuse()
	w.slab.release(c)
	if st == ucs.OK {
		return false
	}
	for _, rx := range w.rxConns {
		if rx.hasReplyOn(i) { // the connection has failed, which is not reported yet
			rx.leaveReplyLane()
		}
	}
	return false
}

var drainOperation = operation{progress: (*thread).resumeDrain, complete: (*thread).drainDone}

func (w *thread) resumeDrain(i uint32) ucs.Status {
	l := &w.lanes[w.slab.Slots[i].Lane]
	if l.state == laneFailed {
		return l.status()
	}
	return l.transport().Flush(uct.FlushRemote, w.slab.Token(i))
}

// drainDone closes the lane that the operation in slot i kept open, if nothing else
// does.
func (w *thread) drainDone(i uint32, _ ucs.Status) bool {
	lane := w.slab.Slots[i].Lane
	w.slab.release(i)
	w.lanes[lane].unuse()
	w.closeIfDrained(lane)
	return true
}
