package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/verbs"
)

// acked takes an acknowledgement that came from queue pair from.
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

// owe notes that a flow is to be acknowledged: with what goes to its sender, else
// at once or before long.
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

// ride gives the acknowledgement that goes with a packet to p; 0: none. One that
// tells of holes needs a packet of its own.
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

// acknowledge sends what a flow owes in a packet of its own.
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

func (f *iface) payUrgent() {
	for _, r := range f.urgent {
		r.Tag &^= hurried
		f.acknowledge(r)
	}
	f.urgent = f.urgent[:0]
}

// payOlder acknowledges what has waited for company since the last time.
func (f *iface) payOlder() {
	for _, r := range f.older {
		r.Tag &^= listed
		f.acknowledge(r)
	}
	f.older, f.owing = f.owing, f.older[:0]
}

// payAll acknowledges everything.
func (f *iface) payAll() {
	f.payUrgent()
	f.payOlder()
	f.payOlder()
}

// shareOut divides the receive buffers among the flows that use them.
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
