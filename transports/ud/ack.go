package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/verbs"
)

// Pending ACKs. A flow with a pending ACK becomes its peer's owed flow, so the next packet to
// the peer carries the ACK. It is also listed in iface.owing. payOlder runs at each reading of
// the clock and sends the ACKs that were listed before the previous one. So an ACK waits for
// one to two intervals to be piggybacked. An urgent ACK is listed in iface.urgent, and
// payUrgent sends it at the end of the pass.

// acked processes an ACK of one of this side's flows, received from queue pair from. sel
// is nil if the ACK is piggybacked.
//
// hot: BenchmarkAM.
func (f *iface) acked(h *arq.Head, sel *arq.Selective, from verbs.QPN) {
	s := f.mux.Sender(h.AckOf())
	if s == nil {
		return
	}
	e := f.eps[s.Tag]
	if e.p.addr.qpn != from {
		return
	}
	if sel != nil {
		s.Repeated(uint32(h.Seq()))
	}
	f.freed = s.Acked(h.Ack(), h.Window(), sel, f.now, f.freed[:0])
	for _, slot := range f.freed {
		f.done(slot)
	}
	if len(e.flushes) > 0 || s.State() > arq.Open {
		e.settle()
	}
	if s.Sendable() {
		if s.Missing() {
			f.stats.Inc(statAgain)
		}
		e.pump()
	}
}

// owe records that r has a pending ACK. The next packet to the peer carries it, unless a
// flush sends it first. An urgent one is sent at the end of the pass.
//
// hot: BenchmarkAM.
func (f *iface) owe(r *arq.Receiver) {
	f.peers[r.Peer].owed = r
	if r.Tag&(listed|hurried) != listed || r.Urgent() {
		f.list(r)
	}
}

func (f *iface) list(r *arq.Receiver) {
	if r.Urgent() {
		if r.Tag&hurried == 0 {
			r.Tag |= hurried
			f.urgent = append(f.urgent, r)
		}
		return
	}
	if r.Tag&listed == 0 && r.Owes() {
		r.Tag |= listed
		f.owing = append(f.owing, r)
	}
}

// ride returns the ACK word to piggyback on a packet to p, or 0 if there is none. A flow
// with out-of-order packets needs a selective ACK, which is a packet of its own.
//
// hot: BenchmarkAM.
func (f *iface) ride(p *peer) uint64 {
	r := p.owed
	p.owed = nil
	if r.Held() != 0 || !r.Owes() {
		return 0
	}
	return r.Acknowledge(uint8(f.share))
}

// acknowledge sends the pending ACK of a flow in a packet of its own.
func (f *iface) acknowledge(r *arq.Receiver) {
	p := f.peers[r.Peer]
	if !r.Owes() || p == nil || f.mux.Receiver(r.Own) != r {
		return
	}
	if p.owed == r {
		p.owed = nil
	}
	f.stats.Inc(statAcks)
	sel, _ := r.Selective()
	h := arq.AckHead(r, uint8(f.share), &sel)
	f.scratch = sel.Append(f.scratch[:0])
	f.control(p, &h, f.scratch)
}

// payUrgent sends the ACKs that must not wait.
func (f *iface) payUrgent() {
	for _, r := range f.urgent {
		r.Tag &^= hurried
		f.acknowledge(r)
	}
	f.urgent = f.urgent[:0]
}

// payOlder sends the ACKs that have been pending since before the previous call.
func (f *iface) payOlder() {
	for _, r := range f.older {
		r.Tag &^= listed
		f.acknowledge(r)
	}
	f.older, f.owing = f.owing, f.older[:0]
}

// payAll sends all pending ACKs.
func (f *iface) payAll() {
	f.payUrgent()
	f.payOlder()
	f.payOlder()
}

// shareOut divides the spare receive buffers among the flows that use them. When
// nearly closed windows grow, the senders get an ACK at once.
func (f *iface) shareOut() {
	was, n := f.share, f.spare()
	f.share = 0
	if n > 0 {
		f.share = min(max(n/max(f.flowing, 1), 2), int(f.conf.Window))
	}
	if was < 4 && f.share > was {
		f.mux.EachReceiver(func(r *arq.Receiver) {
			if r.Reopen(uint8(f.share)); r.Urgent() {
				f.owe(r)
			}
		})
	}
}
