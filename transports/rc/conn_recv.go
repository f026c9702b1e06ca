package rc

import (
	"fmt"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// Anyone can send a datagram to the QP for connection messages. So a message is accepted only
// from the QP and port that it names (parseConnMsg), and a reply goes to them alone. An OPEN may
// still come from a sender that does not receive. The connection is therefore half-open until a
// message shows that the peer receives: it holds a QP but no send queue, its number is bounded,
// and a newer one may evict it (nic.HalfOpen).

// maxProbes is the maximum number of liveness probes that an OPEN of a peer causes.
const maxProbes = 16

// recvConnMsg processes a received connection message and reposts its receive.
func (f *iface) recvConnMsg(wc *verbs.WC) {
	buf := uint32(wc.ID)
	var n connMsg
	if wc.Status == verbs.WCSuccess {
		if err := f.parseConnMsg(&n, wc); err != nil {
			f.stats.Inc(statGarbage)
			f.d.Log().Sugar().Debugf("dropped a connection message: %v", err)
		} else {
			f.dispatchConnMsg(&n)
		}
	}
	f.ud.repost(buf)
}

// parseConnMsg decodes a connection message. It rejects a message whose sender is not the
// interface that the message names: the reply would go to a third party.
func (f *iface) parseConnMsg(n *connMsg, wc *verbs.WC) error {
	if err := n.parse(f.connMsgBytes(wc)); err != nil {
		return err
	}
	if a := n.from.address(); !f.d.SentFrom(&a, wc, f.ud.rx.Bytes(uint32(wc.ID))) {
		return fmt.Errorf("connection message names queue pair %#x at %v, port %d, which did not send it: %w",
			uint32(a.QPN), a.Port.GID.Addr(), a.Port.LID, ucs.ErrInvalid)
	}
	return nil
}

// connMsgBytes returns the datagram after the GRH. It returns nil for a failed completion, and for
// a datagram longer than a connection message.
func (f *iface) connMsgBytes(wc *verbs.WC) []byte {
	if wc.Status != verbs.WCSuccess || wc.Len < grhLen || wc.Len > grhLen+connMsgMaxLen {
		return nil
	}
	return f.ud.rx.Bytes(uint32(wc.ID))[grhLen:wc.Len]
}

// dispatchConnMsg passes a message to its connection. An OPEN may add a connection.
func (f *iface) dispatchConnMsg(n *connMsg) {
	name, m := n.from.iface.name, n.msg
	e := f.byLocalID[m.To]
	if m.To == 0 {
		e = f.byRemoteID[remoteID{name, m.From}]
	}
	if e != nil && e.peer != n.from { // another peer uses this identifier
		return
	}
	if m.Kind == machine.MsgReset && !n.accessError {
		f.ackReset(n)
	}
	if n.drained {
		if e != nil {
			e.handleDrained(n)
		}
		return
	}
	if e == nil && m.To == 0 && m.Kind == machine.MsgOpen {
		e = f.acceptOpen(n)
	}
	if e == nil || e.Life.Over() {
		f.replyStray(n)
		return
	}
	e.handleMsg(n)
}

// replyStray replies to a message for a connection that does not exist, or has ended.
//
// The ACK of a SHUTDOWN, and of a RESET with flag refused, is a RESET without flags. While the
// peer has not acknowledged a RESET with flag refused, all other replies on that connection
// carry the flag, too.
func (f *iface) replyStray(n *connMsg) {
	a, ok := machine.ResetFor(f.worker, n.msg)
	accessError := ok && f.accessErrors.isUnacked(&a, &n.from)
	if n.accessError || n.shutdown && n.msg.To != 0 {
		a, ok, accessError = machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: n.msg.To, To: n.msg.From}, true, false
	}
	if ok {
		f.sendConnMsgTo(&connMsg{msg: a, accessError: accessError}, &n.from)
	}
}

// acceptOpen returns the connection for an OPEN of a peer: one of this side's, or a new half-open
// one. nil: the OPEN is dropped.
func (f *iface) acceptOpen(n *connMsg) *ep {
	if ok, _ := f.portAddr.Reaches(&n.from.port); !ok {
		return nil
	}
	if e := f.matchOpen(n); e != nil {
		if e.M.State() == machine.StateOpening {
			f.stats.Inc(statCrossed)
		} else {
			f.stats.Inc(statAccepted)
		}
		f.Count(e)
		return e
	}
	from, now := n.from.port.Source(), ucs.Now()
	if !f.halfOpen.Admit(from, now, f.evictHalfOpen) {
		f.stats.Inc(statOpensDropped) // the peer retransmits its OPEN
		return nil
	}
	e, err := f.newEP(&n.from)
	if err != nil {
		f.stats.Inc(statRefused)
		f.d.Log().Sugar().Warnf("refused a connection: %v", err)
		return nil
	}
	f.stats.Inc(statAccepted)
	f.halfOpen.Add(e, from, now)
	e.Life = conn.HalfOpen
	f.Count(e)
	f.probeOthers(e)
	return e
}

// evictHalfOpen releases a half-open connection. It was never used, and the layer above does not know
// it.
func (f *iface) evictHalfOpen(e *ep) {
	f.stats.Inc(statHalfOpenEvicted)
	f.uncountAccepted(e)
	e.release(ucs.Canceled)
}

// confirm ends the half-open state: the peer has shown that it receives, or an endpoint uses the
// connection.
func (e *ep) confirm() {
	if e.Life.Step(conn.Confirm) {
		e.f.halfOpen.Remove(e)
	}
}

// probeOthers probes the other connections with the peer of e, which has sent a new OPEN: it may have
// lost them. It sends READY on each, and the peer replies with RESET if it does not know the
// connection.
//
// A lost connection so fails before this side sends a reply on it to a message that arrived on
// e. Only the doubts oldest connections are probed. Connections that are not confirmed are not:
// their OPENs may be forged, and the probe would go to a third party.
func (f *iface) probeOthers(e *ep) {
	es := f.ByPeer[e.peer.iface.name]
	for _, o := range es[:min(len(es), maxProbes)] {
		if o != e && !o.Life.Over() && o.M.Confirmed() {
			o.sendMsg(machine.Msg{Kind: machine.MsgReady, Worker: f.worker, From: o.M.Conn(), To: o.M.Remote()})
		}
	}
}

// matchOpen returns the connection of this side that an OPEN of the peer belongs to: one whose OPEN
// crosses it, else an unused one with an endpoint. nil: none.
func (f *iface) matchOpen(n *connMsg) (unused *ep) {
	if n.separate {
		return nil
	}
	for _, e := range f.ByPeer[n.from.iface.name] {
		switch {
		case e.Life.Over() || e.peer != n.from: // the interface name in the OPEN may be forged
		case e.M.State() == machine.StateOpening && !e.Has(conn.Separate):
			return e
		case e.M.State() == machine.StateIdle && e.Has(conn.Opened) && unused == nil:
			unused = e
		}
	}
	return unused
}

// uncountAccepted undoes Count. A closed endpoint with operations in flight stays counted: Progress is
// called for active ifaces only, and reports their events.
func (f *iface) uncountAccepted(e *ep) {
	if e.Has(conn.Opened) || !f.hasInFlight(e) {
		f.Uncount(e)
	}
}

// handleMsg processes a message of the peer's state machine.
func (e *ep) handleMsg(n *connMsg) {
	if n.shutdown {
		e.f.FailLater(e, conn.ErrPeerClosed)
		e.f.replyStray(n)
		return
	}
	if n.accessError {
		if n.msg.From != e.M.Remote() { // for an earlier connection
			return
		}
		e.f.FailLater(e, errAccessAtRequester)
		e.f.replyStray(n)
		return
	}
	ev := machine.Event{Kind: machine.EventReceive, Msg: n.msg, Busy: e.hasPending()}
	e.remoteQP = n.qpInfo
	if n.msg.Kind == machine.MsgSuspend {
		e.requestCompletion() // so that the connection can be suspended next time
	}
	var attached *connQP
	if e.M.AcceptsPair(n.msg) {
		p, err := e.f.newQP(e)
		if err == nil {
			p.id = n.msg.Pair.Flip()
			e.qps = append(e.qps, p)
			attached = p
			err = p.connect(n.qpInfo, &e.peer.port)
		}
		if err == nil && e.Life != conn.HalfOpen {
			err = p.allocQueue()
		}
		if err != nil {
			e.f.stats.Inc(statRefused)
			e.f.d.Log().Sugar().Warnf("cannot connect to a queue pair of a peer: %v", err)
			ev.Kind = machine.EventAttachFailed
		}
	}
	e.step(ev)
	if attached != nil && !e.M.Uses(attached.id) {
		e.retire(attached.id)
	}
}
