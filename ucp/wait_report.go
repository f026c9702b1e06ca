package ucp

import (
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/uct"
)

// ReportWaits implements uct.WaitReporter. It reports where this worker waits for a peer,
// so that the transport probes that the peer is alive:
//
//   - a lane with sends that the peer has not matched or requested, or with emulated operations without a reply;
//   - an rx connection with messages whose sender waits for a reply, with requested data, or with an incomplete message;
//   - the lane of an endpoint that a receive is tied to: it waits for the end of the connection.
func (wi *workerIface) ReportWaits(least uct.WaitKind, report func(uct.Endpoint, uint32, uct.WaitKind)) {
	w := &wi.w.t
	lane := func(i uint32, waits uct.WaitKind) {
		if l := &w.lanes[i]; l.ep != nil && l.state != laneFailed && l.iface == uint32(wi.index) {
			report(l.transport(), 0, waits)
		}
	}
	for i := range w.lanes {
		if w.lanes[i].unacked.Head != 0 {
			lane(uint32(i), uct.WaitForReply)
		}
	}
	for i := range w.emul.ops {
		if o := &w.emul.ops[i]; o.live {
			lane(o.lane, uct.WaitForReply)
		}
	}
	for id, rx := range wi.rxConns {
		if rx.pendingReplies > 0 || rx.pendingFetches > 0 || rx.into != reasmNone {
			report(nil, id, uct.WaitForReply)
		}
	}
	for i := 1; least <= uct.WaitForClose && i < len(w.slab.Slots); i++ {
		if s := &w.slab.Slots[i]; s.State == request.StateLive && s.Flags&request.FlagTied != 0 {
			lane(w.eps[s.EP].lane, uct.WaitForClose)
		}
	}
}
