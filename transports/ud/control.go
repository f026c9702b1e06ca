package ud

import (
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// doubts is the largest number of flows that one accepted Connect causes to be probed.
const doubts = 16

// heard processes a control packet, whose completion is w.
func (f *iface) heard(h *arq.Head, body []byte, w *verbs.WC) {
	from := w.SrcQP
	switch h.ID() {
	case arq.Ack:
		sel := arq.ParseSelective(h, body)
		f.acked(h, &sel, from)
	case arq.Connect:
		f.offered(h, body, w)
	case arq.Unknown:
		for _, e := range f.eps {
			if e != nil && e.p.addr.qpn == from && e.s.To() == h.To() {
				e.s.Unknown(h.Seq())
				e.settle()
				return
			}
		}
	case arq.Poke, arq.Farewell:
		r := f.mux.Receiver(h.To())
		switch {
		case r != nil && f.peers[r.Peer].addr.qpn != from:
			f.stats.Inc(statGarbage)
		case h.ID() == arq.Farewell:
			if r = f.mux.Farewell(h, f.closed); r != nil {
				f.forgetReceiver(r)
			}
		case r == nil:
			f.unknown(h, from)
		default:
			r.Poked(f.now)
			f.confirmed(r)
			f.owe(r)
		}
	default:
		f.answered(h, from)
	}
}

// answered processes an Accept, Refuse or Bye of a flow that this side sends.
func (f *iface) answered(h *arq.Head, from verbs.QPN) {
	s := f.mux.Sender(h.AckOf())
	if s == nil {
		if p := f.known(from); p != nil && h.ID() == arq.Bye {
			answer := arq.ByeAnswer(h)
			f.control(p, &answer, nil)
		}
		return
	}
	e := f.eps[s.Tag]
	if e.p.addr.qpn != from {
		f.stats.Inc(statGarbage)
		return
	}
	if h.ID() == arq.Bye {
		answer := arq.ByeAnswer(h)
		f.control(e.p, &answer, nil)
		f.acked(h, nil, from) // a Bye carries an ACK
	}
	if f.mux.Answered(h, f.now) == nil {
		return
	}
	e.pump()
	e.settle()
	if !e.gone {
		e.work()
	}
}

// offered processes a Connect. It replies only if the address in the packet is that of its
// sender. So no reply goes to a third party.
func (f *iface) offered(h *arq.Head, body []byte, w *verbs.WC) {
	var a address
	if a.parseBoth(body) != nil {
		f.stats.Inc(statGarbage)
		return
	}
	if p := a.packed(); !f.d.SentFrom(&p, w, f.rx.Bytes(uint32(w.ID))) {
		f.stats.Inc(statGarbage)
		return
	}
	if ok, _ := f.self.port.Reaches(&a.port); !ok {
		f.stats.Inc(statRefused)
		return
	}
	p, err := f.meet(&a)
	if err != nil {
		f.stats.Inc(statRefused)
		return
	}
	answer, made := f.mux.Connect(p.index, h, uint8(max(f.share, 1)), f.now)
	if made != nil {
		p.ins++
		if !f.halfOpen.Admit(a.port.Source(), f.now, f.giveUp) {
			f.stats.Inc(statPassedOver) // the peer retransmits Connect
			f.forgetReceiver(made)
			return
		}
		f.halfOpen.Add(made, a.port.Source(), f.now)
		made.Tag |= halfOpen
		p.doubt()
	}
	f.control(p, &answer, nil)
	switch {
	case made != nil:
		f.stats.Inc(statAccepted)
		f.more = true
	case answer.ID() != arq.Accept:
		f.stats.Inc(statRefused)
		f.part(p)
	}
}

// giveUp removes a half-open flow to make room for another.
func (f *iface) giveUp(r *arq.Receiver) {
	f.stats.Inc(statGivenUp)
	f.forgetReceiver(r)
}

// confirmed marks r as no longer half-open, since its sender has received Accept.
func (f *iface) confirmed(r *arq.Receiver) {
	if r.Tag&halfOpen != 0 {
		r.Tag &^= halfOpen
		f.halfOpen.Remove(r)
	}
}

// doubt probes the flows to p, which has just opened a flow. A flow that p does not know
// any more fails before a reply to the new flow's messages is sent on it. With very many
// flows, only the oldest are probed.
func (p *peer) doubt() {
	for _, e := range p.eps[:min(len(p.eps), doubts)] {
		if e.status == ucs.OK && e.s.State() == arq.Open {
			e.f.control(p, &arq.Head{A: e.s.Poke()}, nil)
		}
	}
}

// unknown sends Unknown to the sender of a packet whose flow does not exist here. It does
// nothing if no peer has that queue pair.
//
//go:noinline
func (f *iface) unknown(h *arq.Head, from verbs.QPN) {
	f.stats.Inc(statUnknown)
	if p := f.known(from); p != nil {
		answer := arq.UnknownHead(h)
		f.control(p, &answer, nil)
	}
}

// known returns a peer by its queue pair number. It searches all peers, so the number of
// searches between two readings of the clock is bounded.
func (f *iface) known(from verbs.QPN) *peer {
	if f.searches++; f.searches > 8 {
		return nil
	}
	for _, p := range f.names {
		if p.addr.qpn == from {
			return p
		}
	}
	return nil
}

// clock runs the work that depends on time: ACKs, timers, the sweep.
func (f *iface) clock(now ucs.Time) {
	late := now.Sub(f.now) > f.conf.MinRTO/2
	f.now, f.searches = now, 0
	f.shareOut()
	f.payUrgent()
	f.payOlder()
	if f.asked != f.ended {
		f.reap()
	}
	switch {
	case f.closed:
	case late: // Progress was not called for a while. Packets that arrived in time are received first.
		f.due = max(f.due, now.Add(f.conf.MinRTO/2))
	case now >= f.due:
		f.timers()
	}
	if now.Sub(f.swept) > f.sweepEvery {
		f.sweep(now)
	}
	f.owner.Poll(now)
	f.wakeAt(now.Add(watchdog)) // in case the program stops polling
}

// timers services the endpoints in iface.busy and sets iface.due.
func (f *iface) timers() {
	due := never
	for i := 0; i < len(f.busy); {
		e := f.busy[i]
		f.tick(e)
		if e.gone || e.s.Resting() {
			last := len(f.busy) - 1
			f.busy[i], f.busy[last] = f.busy[last], nil
			f.busy = f.busy[:last]
			e.busy = false
			continue
		}
		due = min(due, e.s.Deadline())
		i++
	}
	f.due = due
}

// tick runs the expired timer of a flow.
func (f *iface) tick(e *endpoint) {
	switch act := e.s.Tick(f.now); act {
	case arq.Nothing:
	case arq.SendConnect:
		h := f.mux.ConnectHead(e.num, e.p.addr.name)
		f.scratch = f.self.appendBoth(f.scratch[:0])
		f.control(e.p, &h, f.scratch)
	case arq.SendPoke:
		f.control(e.p, &arq.Head{A: e.s.Poke()}, nil)
	case arq.SendOldest:
		f.stats.Inc(statTimeouts)
		slot, a := e.s.Oldest(f.now)
		e.transmit(slot, a)
	case arq.Over:
		e.settle()
		return
	}
	e.pump()
}

// sweep services all flows. Idle senders probe their peer when keepalive is due. Receivers
// whose sender has been silent too long are removed.
func (f *iface) sweep(now ucs.Time) {
	f.swept = now
	for _, e := range f.eps {
		if e == nil || e.busy || !e.s.Started() {
			continue
		}
		if f.tick(e); !e.gone && !e.s.Resting() {
			e.work()
		}
	}
	f.flowing = 0
	f.silent = f.silent[:0]
	f.mux.EachReceiver(func(r *arq.Receiver) {
		if r.Tag&lively != 0 {
			f.flowing++
			r.Tag &^= lively
		}
		if r.Tick(now) && !f.peers[r.Peer].doubted() {
			f.silent = append(f.silent, r)
		}
	})
	for i, r := range f.silent {
		f.queueEnd(r, endSilent, nil)
		f.forgetReceiver(r)
		f.silent[i] = nil
	}
}
