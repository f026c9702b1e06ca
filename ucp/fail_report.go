package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs"
)

// A transport completes the operations of a failed connection before it reports the
// failure, and only the report has the reason. If such an operation completed at once,
// its callback, waiters and flush would receive the bare ErrPeerFailed. So it completes
// with the report.
//
// Invariant: an operation in Worker.unreported is live, and the transport has released its
// buffer. endReported completes it, after the report or when its lane closes.

// awaitsReport reports whether p has still to report the failure of the connection that the
// operation in slot i used. If so, the operation completes with that report. No report
// comes for an operation without a lane, or whose lane uses another connection by now.
//
//go:noinline
func (w *thread) awaitsReport(i uint32, wi *workerIface) bool {
	s := &w.slab.Slots[i]
	l := &w.lanes[s.Lane]
	if l.ep == nil || l.state == laneFailed || l.iface != uint32(wi.index) {
		return false
	}
	s.Status = ucs.PeerFailed
	w.unreported = append(w.unreported, w.slab.ID(i))
	return true
}

// endReported completes the operations of lane i that waited for the report of its failure.
// It is also called if the lane closes and no report will come.
func (w *thread) endReported(i uint32) {
	all := w.unreported
	w.unreported = nil
	for _, id := range all {
		k := w.slab.Find(id)
		switch s := &w.slab.Slots[k]; {
		case k == 0 || s.State != request.StateLive: // an abort completed it
		case s.Lane != i:
			w.unreported = append(w.unreported, id)
		default:
			w.end(k, s.Status)
		}
	}
}
