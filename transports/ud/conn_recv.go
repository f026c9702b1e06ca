package ud

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/verbs"
)

// maxProbes is the largest number of flows that one accepted Connect causes to be probed.
const maxProbes = 16

// handleControl processes a control packet with header h, whose completion is w. body follows the
// header.
//
// Invariant: only the queue pair that a flow belongs to changes the flow, and only a packet whose
// sender is known gets a reply. A Connect names its sender. It gets a reply only if the address
// in it is that of its sender, so that no reply goes to a third party.
func (f *iface) handleControl(h *arq.Header, body []byte, w *verbs.WC) {
	from := w.SrcQP
	switch h.ID() {
	case arq.Ack:
		sel := arq.ParseSelective(h, body)
		f.handleACK(h, &sel, from)

	case arq.Connect:
		var a address
		if a.parseBody(body) != nil || !f.d.SentFrom(&a.Address, w, f.rx.Bytes(uint32(w.ID))) {
			f.stats.Inc(statInvalid)
			return
		}
		if ok, _ := f.self.Port.Reaches(&a.Port); !ok {
			f.stats.Inc(statRefused)
			return
		}
		p, err := f.getPeer(&a)
		if err != nil {
			f.stats.Inc(statRefused)
			return
		}
		if refusal, ok := errors.AsType[*protocol.Error](checkVersion(h.B)); ok {
			f.stats.Inc(statRefused)
			reply := arq.RejectHeader(h)
			reply.C = versionWord(refusal.Features)
			f.sendControl(p, &reply, nil)
			f.removeUnusedPeer(p)
			return
		}
		reply, made := f.mux.HandleConnect(p.index, h, uint8(max(f.recvWindow, 1)), f.now)
		if reply.ID() != arq.Close {
			reply.C = versionWord(0)
		}
		if made != nil {
			p.numRx++
			if !f.halfOpen.Admit(a.Port.Source(), f.now, f.evictHalfOpen) {
				f.stats.Inc(statConnectsDropped) // the peer retransmits Connect
				f.removeReceiver(made)
				return
			}
			f.halfOpen.Add(made, a.Port.Source(), f.now)
			made.Tag |= halfOpen
			// A flow that the peer does not know any more must fail before a reply to the new
			// flow's messages is sent on it. With very many flows, only the oldest are probed.
			for _, e := range p.eps[:min(len(p.eps), maxProbes)] {
				if e.status == ucs.OK && e.s.State() == arq.Open {
					f.sendControl(p, &arq.Header{A: e.s.ProbeWord()}, nil)
				}
			}
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

	case arq.Accept, arq.Reject, arq.Close: // of a flow that this side sends
		s := f.mux.Sender(h.AckOf())
		if s == nil {
			if p := f.peerByQPN(from); p != nil && h.ID() == arq.Close {
				reply := arq.CloseReply(h)
				f.sendControl(p, &reply, nil)
			}
			return
		}
		e := f.eps[s.Tag]
		if e.p.addr.QPN != from {
			f.stats.Inc(statInvalid)
			return
		}
		if h.ID() == arq.Close {
			reply := arq.CloseReply(h)
			f.sendControl(e.p, &reply, nil)
			f.handleACK(h, nil, from) // a Close carries an ACK
		}
		var refusal error
		if h.ID() != arq.Close {
			if refusal = checkVersion(h.C); refusal != nil {
				h = &arq.Header{A: arq.RejectHeader(h).A, B: h.B} // whatever it is
			}
		}
		if f.mux.HandleReply(h, f.now) == nil {
			return
		}
		if refusal != nil {
			e.err = fmt.Errorf("%w: %w", ucs.ErrPeerFailed, refusal)
		}
		e.transmitReady()
		e.handleState()
		if e.state != epDetached {
			e.setTimer()
		}

	case arq.Reset: // of a flow that this side sends, by the receiver's number
		for _, e := range f.eps {
			if e != nil && e.p.addr.QPN == from && e.s.To() == h.To() {
				e.s.HandleReset(h.Seq())
				e.handleState()
				return
			}
		}

	case arq.Probe, arq.CloseComplete: // of a flow that this side receives
		r := f.mux.Receiver(h.To())
		switch {
		case r != nil && f.peers[r.Peer].addr.QPN != from:
			f.stats.Inc(statInvalid)
		case h.ID() == arq.CloseComplete:
			if r = f.mux.HandleCloseComplete(h, f.state == ifaceClosed); r != nil {
				f.removeReceiver(r)
			}
		case r == nil:
			f.replyReset(h, from)
		default:
			r.HandleProbe(f.now)
			f.confirm(r)
			f.scheduleACK(r)
		}
	}
}

// replyReset sends Reset to the sender of a packet whose flow does not exist here. It does
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

// confirm marks r as no longer half-open, since its sender has received Accept.
func (f *iface) confirm(r *arq.Receiver) {
	if r.Tag&halfOpen != 0 {
		r.Tag &^= halfOpen
		f.halfOpen.Remove(r)
	}
}

// evictHalfOpen removes a half-open flow to make room for another.
func (f *iface) evictHalfOpen(r *arq.Receiver) {
	f.stats.Inc(statHalfOpenEvicted)
	f.removeReceiver(r)
}

// removeReceiver removes a received flow and frees its out-of-order packets.
func (f *iface) removeReceiver(r *arq.Receiver) {
	f.confirm(r)
	f.heldBufs -= r.Held()
	f.freeRecvs = r.Drop(f.freeRecvs)
	f.mux.RemoveReceiver(r.Local)
	p := f.peers[r.Peer]
	if p.pendingACK == r {
		p.pendingACK = nil
	}
	p.numRx--
	f.removeUnusedPeer(p)
}
