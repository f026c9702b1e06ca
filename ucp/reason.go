package ucp

import "github.com/goucx/goucx/ucs"

// A transport ends the operations of a failed connection before it reports the failure,
// and only the report has the reason. An operation that ended in between would pass the
// bare ErrPeerFailed to its callback, its waiters and its flush. So it ends with the
// report.

// awaitsReport reports whether the failure of the connection that the operation in slot i
// used is still to be reported by p. The operation, which is over, ends then. One without
// a lane, or whose lane uses another connection by now, gets no report.
//
//go:noinline
func (w *Worker) awaitsReport(i uint32, p *port) bool {
	s := &w.slab.slots[i]
	l := &w.t.lanes[s.lane]
	if l.ep == nil || l.status != ucs.OK || l.port != uint32(p.index) {
		return false
	}
	s.status = ucs.PeerFailed
	w.unreported = append(w.unreported, w.slab.id(i))
	return true
}

// endReported ends the operations of lane i that waited for the report of its failure, or
// of which none comes because the lane closes.
func (w *Worker) endReported(i uint32) {
	all := w.unreported
	w.unreported = nil
	for _, id := range all {
		k := w.slab.find(id)
		switch s := &w.slab.slots[k]; {
		case k == 0 || s.state != slotLive: // an abort ended it
		case s.lane != i:
			w.unreported = append(w.unreported, id)
		default:
			w.end(k, s.status)
		}
	}
}
