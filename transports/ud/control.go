package ud

import (
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// maxProbes is the largest number of flows that one accepted Connect causes to be probed.
const maxProbes = 16

// handleControl processes a control packet, whose completion is w.
func (f *iface) handleControl(h *arq.Header, body []byte, w *verbs.WC) {
	from := w.SrcQP
	switch h.ID() {
	case arq.Ack:
		sel := arq.ParseSelective(h, body)
		f.handleACK(h, &sel, from)
	case arq.Connect:
		f.handleConnect(h, body, w)
	case arq.Reset:
		for _, e := range f.eps {
			if e != nil && e.p.addr.qpn == from && e.s.To() == h.To() {
				e.s.HandleReset(h.Seq())
				e.handleState()
				return
			}
		}
	case arq.Probe, arq.CloseComplete:
		r := f.mux.Receiver(h.To())
		switch {
		case r != nil && f.peers[r.Peer].addr.qpn != from:
			f.stats.Inc(statInvalid)
		case h.ID() == arq.CloseComplete:
			if r = f.mux.HandleCloseComplete(h, f.closed); r != nil {
				f.removeReceiver(r)
			}
		case r == nil:
			f.replyReset(h, from)
		default:
			r.HandleProbe(f.now)
			f.confirm(r)
			f.scheduleACK(r)
		}
	default:
		f.handleReply(h, from)
	}
}

// handleReply processes an Accept, Refuse or Bye of a flow that this side sends.
func (f *iface) handleReply(h *arq.Header, from verbs.QPN) {
	s := f.mux.Sender(h.AckOf())
	if s == nil {
		if p := f.peerByQPN(from); p != nil && h.ID() == arq.Close {
			reply := arq.CloseReply(h)
			f.sendControl(p, &reply, nil)
		}
		return
	}
	e := f.eps[s.Tag]
	if e.p.addr.qpn != from {
		f.stats.Inc(statInvalid)
		return
	}
	if h.ID() == arq.Close {
		reply := arq.CloseReply(h)
		f.sendControl(e.p, &reply, nil)
		f.handleACK(h, nil, from) // a Bye carries an ACK
	}
	if f.mux.HandleReply(h, f.now) == nil {
		return
	}
	e.transmitReady()
	e.handleState()
	if !e.removed {
		e.setTimer()
	}
}

// handleConnect processes a Connect. It replies only if the address in the packet is that of its
// sender. So no reply goes to a third party.
func (f *iface) handleConnect(h *arq.Header, body []byte, w *verbs.WC) {
	var a address
	if a.parseBoth(body) != nil {
		f.stats.Inc(statInvalid)
		return
	}
	if p := a.packed(); !f.d.SentFrom(&p, w, f.rx.Bytes(uint32(w.ID))) {
		f.stats.Inc(statInvalid)
		return
	}
	if ok, _ := f.self.port.Reaches(&a.port); !ok {
		f.stats.Inc(statRefused)
		return
	}
	p, err := f.getPeer(&a)
	if err != nil {
		f.stats.Inc(statRefused)
		return
	}
	reply, made := f.mux.HandleConnect(p.index, h, uint8(max(f.recvWindow, 1)), f.now)
	if made != nil {
		p.numRx++
		if !f.halfOpen.Admit(a.port.Source(), f.now, f.evictHalfOpen) {
			f.stats.Inc(statConnectsDropped) // the peer retransmits Connect
			f.removeReceiver(made)
			return
		}
		f.halfOpen.Add(made, a.port.Source(), f.now)
		made.Tag |= halfOpen
		p.probeOthers()
	}
	f.sendControl(p, &reply, nil)
	switch {
	case made != nil:
		f.stats.Inc(statAccepted)
		f.restNeeded = true
	case reply.ID() != arq.Accept:
		f.stats.Inc(statRefused)
		f.removeUnusedPeer(p)
	}
}

// evictHalfOpen removes a half-open flow to make room for another.
func (f *iface) evictHalfOpen(r *arq.Receiver) {
	f.stats.Inc(statHalfOpenEvicted)
	f.removeReceiver(r)
}

// confirm marks r as no longer half-open, since its sender has received Accept.
func (f *iface) confirm(r *arq.Receiver) {
	if r.Tag&halfOpen != 0 {
		r.Tag &^= halfOpen
		f.halfOpen.Remove(r)
	}
}

// probeOthers probes the flows to p, which has just opened a flow. A flow that p does not know
// any more fails before a reply to the new flow's messages is sent on it. With very many
// flows, only the oldest are probed.
func (p *peer) probeOthers() {
	for _, e := range p.eps[:min(len(p.eps), maxProbes)] {
		if e.status == ucs.OK && e.s.State() == arq.Open {
			e.f.sendControl(p, &arq.Header{A: e.s.ProbeWord()}, nil)
		}
	}
}

// replyReset sends Unknown to the sender of a packet whose flow does not exist here. It does
// nothing if no peer has that queue pair.
//
//go:noinline
func (f *iface) replyReset(h *arq.Header, from verbs.QPN) {
	f.stats.Inc(statUnknown)
	if p := f.peerByQPN(from); p != nil {
		reply := arq.ResetHeader(h)
		f.sendControl(p, &reply, nil)
	}
}

// peerByQPN returns a peer by its queue pair number. It searches all peers, so the number of
// searches between two readings of the clock is bounded.
func (f *iface) peerByQPN(from verbs.QPN) *peer {
	if f.peerSearches++; f.peerSearches > 8 {
		return nil
	}
	for _, p := range f.peersByName {
		if p.addr.qpn == from {
			return p
		}
	}
	return nil
}

// serviceTimers runs the work that depends on time: ACKs, timers, the sweep.
func (f *iface) serviceTimers(now ucs.Time) {
	late := now.Sub(f.now) > f.conf.MinRTO/2
	f.now, f.peerSearches = now, 0
	f.updateRecvWindow()
	f.flushUrgentACKs()
	f.flushAgedACKs()
	if f.signaled != f.signaledDone {
		f.pollSendCQ()
	}
	switch {
	case f.closed:
	case late: // Progress was not called for a while. Packets that arrived in time are received first.
		f.nextDeadline = max(f.nextDeadline, now.Add(f.conf.MinRTO/2))
	case now >= f.nextDeadline:
		f.expireTimers()
	}
	if now.Sub(f.sweptAt) > f.sweepEvery {
		f.sweep(now)
	}
	f.PollAlarm(now)
	f.SetAlarm(now.Add(pollTimeout)) // in case the program stops polling
}

// expireTimers services the endpoints in iface.unacked and sets iface.nextDeadline.
func (f *iface) expireTimers() {
	due := nic.Never
	for i := 0; i < len(f.unacked); {
		e := f.unacked[i]
		f.expireTimer(e)
		if e.removed || e.s.Quiescent() {
			last := len(f.unacked) - 1
			f.unacked[i], f.unacked[last] = f.unacked[last], nil
			f.unacked = f.unacked[:last]
			e.inUnacked = false
			continue
		}
		due = min(due, e.s.Deadline())
		i++
	}
	f.nextDeadline = due
}

// expireTimer runs the expired timer of a flow.
func (f *iface) expireTimer(e *endpoint) {
	switch act := e.s.Tick(f.now); act {
	case arq.Nothing:
	case arq.SendConnect:
		h := f.mux.ConnectHeader(e.flow, e.p.addr.name)
		f.bodyBuf = f.self.appendBoth(f.bodyBuf[:0])
		f.sendControl(e.p, &h, f.bodyBuf)
	case arq.SendProbe:
		f.sendControl(e.p, &arq.Header{A: e.s.ProbeWord()}, nil)
	case arq.ResendOldest:
		f.stats.Inc(statTimeouts)
		slot, a := e.s.RetransmitOldest(f.now)
		e.transmit(slot, a)
	case arq.FlowFailed:
		e.handleState()
		return
	}
	e.transmitReady()
}

// sweep services all flows. Idle senders probe their peer when keepalive is due. Receivers
// whose sender has been silent too long are removed.
func (f *iface) sweep(now ucs.Time) {
	f.sweptAt = now
	for _, e := range f.eps {
		if e == nil || e.inUnacked || !e.s.Started() {
			continue
		}
		if f.expireTimer(e); !e.removed && !e.s.Quiescent() {
			e.setTimer()
		}
	}
	f.activeRx = 0
	f.timedOutRx = f.timedOutRx[:0]
	f.mux.EachReceiver(func(r *arq.Receiver) {
		if r.Tag&recvActive != 0 {
			f.activeRx++
			r.Tag &^= recvActive
		}
		if r.Tick(now) && !f.peers[r.Peer].hasPendingProbe() {
			f.timedOutRx = append(f.timedOutRx, r)
		}
	})
	for i, r := range f.timedOutRx {
		f.queueRxEnd(r, endTimedOut, nil)
		f.removeReceiver(r)
		f.timedOutRx[i] = nil
	}
}
