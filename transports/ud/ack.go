package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/verbs"
)

// A flow with a pending ACK becomes its peer's pendingACK, so the next packet to the peer carries
// the ACK. It is also listed in iface.pendingACKs. flushAgedACKs runs at each reading of the clock
// and sends the ACKs that were listed before the previous reading. So an ACK waits for one to two
// intervals to be piggybacked. An urgent ACK is listed in iface.urgentACKs, and flushUrgentACKs
// sends it at the end of the pass.
//
// Invariant: a flow with a pending ACK is in one of the lists, so its ACK is sent without another
// packet from either side. A list may also hold flows whose ACK was piggybacked since, or that
// were removed: sendACK skips them.

// handleACK processes an ACK of one of this side's flows, received from queue pair from. sel
// is nil if the ACK is piggybacked.
//
//hot:bench BenchmarkAM
func (f *iface) handleACK(h *arq.Header, sel *arq.Selective, from verbs.QPN) {
	s := f.mux.Sender(h.AckOf())
	if s == nil {
		return
	}
	e := f.eps[s.Tag]
	if e.p.addr.QPN != from {
		return
	}
	if sel != nil {
		s.HandleDuplicates(uint32(h.Seq()))
	}
	f.ackedSlots = s.HandleAck(h.Ack(), h.Window(), sel, f.now, f.ackedSlots[:0])
	for _, slot := range f.ackedSlots {
		f.freeSlot(slot)
	}
	if len(e.flushes) > 0 || s.State() > arq.Open {
		e.handleState()
	}
	if s.Sendable() {
		if s.HasLost() {
			f.stats.Inc(statLossACKs)
		}
		e.transmitReady()
	}
}

// scheduleACK records that r has a pending ACK. The next packet to the peer carries it, unless a
// flush sends it first. An urgent one is sent at the end of the pass.
//
//hot:bench BenchmarkAM
func (f *iface) scheduleACK(r *arq.Receiver) {
	f.peers[r.Peer].pendingACK = r
	switch {
	case r.AckUrgent():
		if r.Tag&ackUrgent == 0 {
			r.Tag |= ackUrgent
			f.urgentACKs = append(f.urgentACKs, r)
		}
	case r.Tag&ackListed == 0 && r.AckPending():
		r.Tag |= ackListed
		f.pendingACKs = append(f.pendingACKs, r)
	}
}

// sendACK sends the pending ACK of a flow in a packet of its own.
func (f *iface) sendACK(r *arq.Receiver) {
	p := f.peers[r.Peer]
	if !r.AckPending() || p == nil || f.mux.Receiver(r.Local) != r {
		return
	}
	if p.pendingACK == r {
		p.pendingACK = nil
	}
	f.stats.Inc(statAcks)
	sel, _ := r.Selective()
	h := arq.AckHeader(r, uint8(f.recvWindow), &sel)
	f.bodyBuf = sel.Append(f.bodyBuf[:0])
	f.sendControl(p, &h, f.bodyBuf)
}

// flushUrgentACKs sends the ACKs that must not wait.
func (f *iface) flushUrgentACKs() {
	for _, r := range f.urgentACKs {
		r.Tag &^= ackUrgent
		f.sendACK(r)
	}
	f.urgentACKs = f.urgentACKs[:0]
}

// flushAgedACKs sends the ACKs that have been pending since before the previous call.
func (f *iface) flushAgedACKs() {
	for _, r := range f.agedACKs {
		r.Tag &^= ackListed
		f.sendACK(r)
	}
	f.agedACKs, f.pendingACKs = f.pendingACKs, f.agedACKs[:0]
}

// flushACKs sends all pending ACKs.
func (f *iface) flushACKs() {
	f.flushUrgentACKs()
	f.flushAgedACKs()
	f.flushAgedACKs()
}

// updateRecvWindow divides the spare receive buffers among the flows that use them. When
// nearly closed windows grow, the senders get an ACK at once.
func (f *iface) updateRecvWindow() {
	was, n := f.recvWindow, f.spareRecvs()
	f.recvWindow = 0
	if n > 0 {
		f.recvWindow = min(max(n/max(f.activeRx, 1), 2), int(f.conf.Window))
	}
	if was < 4 && f.recvWindow > was {
		f.mux.EachReceiver(func(r *arq.Receiver) {
			if r.WindowGrew(uint8(f.recvWindow)); r.AckUrgent() {
				f.scheduleACK(r)
			}
		})
	}
}
