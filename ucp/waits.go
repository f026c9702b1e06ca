package ucp

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// ReportWaits implements uct.WaitReporter. It reports where this worker waits for a peer,
// so that the transport probes that the peer is alive:
//
//   - a lane with sends that the peer has not matched or requested, or with emulated operations without a reply;
//   - an rx connection with messages whose sender waits for a reply, with requested data, or with an incomplete message;
//   - the lane of an endpoint that a receive is tied to: it waits for the end of the connection.
func (p *port) ReportWaits(least uct.WaitKind, report func(uct.Endpoint, uint32, uct.WaitKind)) {
	w := p.w
	lane := func(i uint32, waits uct.WaitKind) {
		if l := &w.t.lanes[i]; l.ep != nil && l.status == ucs.OK && l.port == uint32(p.index) {
			report(l.transport(), 0, waits)
		}
	}
	for i := range w.t.lanes {
		if w.t.lanes[i].open.head != 0 {
			lane(uint32(i), uct.WaitForReply)
		}
	}
	for i := range w.sw.ops {
		if o := &w.sw.ops[i]; o.live {
			lane(o.lane, uct.WaitForReply)
		}
	}
	for id, s := range p.sources {
		if s.waiting > 0 || s.fetches > 0 || s.into != reasmNone {
			report(nil, id, uct.WaitForReply)
		}
	}
	for i := 1; least <= uct.WaitForClose && i < len(w.slab.slots); i++ {
		if s := &w.slab.slots[i]; s.state == slotLive && s.flags&flagTied != 0 {
			lane(w.eps[s.ep].lane, uct.WaitForClose)
		}
	}
}
