package rc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// The life of a connection: newEP adds it, without a QP. connect sends OPEN when an operation
// needs it; for an OPEN of a peer, iface.acceptOpen does the same. The state machine
// (wireup/machine) then decides about all steps; step executes them: it creates and connects
// QPs, switches the directions, retires QPs (migrate.go) and reports the end (service.go).
//
// A connection has an identifier on each side. iface.byLocalID finds it by the local one and
// iface.byRemoteID by the peer's. iface.ByPeer lists all connections with an interface, oldest first.

// newEP adds a connection that has no QP yet.
func (f *iface) newEP(p *peer) (*ep, error) {
	ah, err := f.pd.CreateAH(f.d.AH(f.port, &p.port))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrUnreachable, err)
	}
	e := &ep{f: f, peer: *p, ah: ah, q: &f.nullQueue}
	f.Insert(e, p.iface.name)
	e.newMachine()
	return e, nil
}

// newMachine sets a new state machine with a new random identifier.
func (e *ep) newMachine() {
	f := e.f
	e.M = machine.New(machine.Config{Worker: f.worker, Conn: conn.NewID(), ThreeWay: true, Timeout: f.retryInterval, Limit: f.connectLimit})
	f.byLocalID[e.M.Conn()] = e
}

// dropID removes the identifiers of both sides from the tables.
func (e *ep) dropID() {
	delete(e.f.byLocalID, e.M.Conn())
	delete(e.f.byRemoteID, remoteID{e.peer.iface.name, e.M.Remote()})
}

// ensureConnected opens the connection, or resumes it if it is suspended.
func (e *ep) ensureConnected() {
	if e.Life.Over() {
		return
	}
	switch {
	case e.M.State() == machine.StateIdle:
		e.connect()
	case e.M.State() == machine.StateOpen && e.M.TxPair() == machine.None && e.M.TxPending() == machine.None:
		e.step(machine.Event{Kind: machine.EventResume})
	}
}

// connect sends an OPEN message. The connection is separate, and so not merged with an OPEN of
// the peer, if the peer is this interface itself. It is separate too if the peer may not know
// yet of another connection between the two.
func (e *ep) connect() {
	f := e.f
	name := e.peer.iface.name
	e.Drop(conn.Separate)
	if name == f.self.iface.name || slices.ContainsFunc(f.ByPeer[name], func(o *ep) bool {
		return o != e && o.M.State() != machine.StateIdle && !o.M.Confirmed()
	}) {
		e.Add(conn.Separate)
	}
	f.stats.Inc(statConnected)
	e.step(machine.Event{Kind: machine.EventConnect})
}

// step passes an event to the state machine and executes the actions that it returns.
func (e *ep) step(ev machine.Event) {
	f := e.f
	var buf [8]machine.Action
	for _, a := range e.M.Step(ucs.Now(), ev, buf[:0]) {
		switch a.Kind {
		case machine.ActionCreate:
			p, err := f.newQP(e)
			if err == nil {
				p.id = a.Pair
				e.qps = append(e.qps, p)
				err = p.allocQueue()
			}
			if err != nil {
				f.FailLater(e, err)
			}
		case machine.ActionConnect:
			if p := e.qp(a.Pair); p != nil {
				if err := p.connect(e.remoteQP, &e.peer.port); err != nil {
					f.FailLater(e, fmt.Errorf("%w: connect queue pair: %w", ucs.ErrPeerFailed, err))
				}
			}
		case machine.ActionSend:
			e.sendMsg(a.Msg)
		case machine.ActionSwitchRx:
			if p := e.qp(a.Pair); p != nil {
				p.life.step(qpRead)
				if len(p.outOfOrder) > 0 { // messages that arrived early are delivered first
					f.markReadable(p)
				}
			}
		case machine.ActionSwitchTx:
			e.switchTx(a.Pair)
		case machine.ActionRetire:
			e.retire(a.Pair)
		case machine.ActionClose:
			f.Schedule(e)
		case machine.ActionFail:
			switch a.Reason {
			case machine.ReasonStale:
				e.reconnect()
			case machine.ReasonRejected:
				f.FailLater(e, fmt.Errorf("%w: it refused the connection", ucs.ErrUnreachable))
			case machine.ReasonPeerLost:
				f.FailLater(e, conn.PeerFailed("it does not answer, or has lost the connection"))
			case machine.ReasonProtocolError:
				f.FailLater(e, conn.ErrProtocol)
			}
		}
	}
	e.setTimer()
	if r := e.M.Remote(); r != 0 && e.Life != conn.Released {
		f.byRemoteID[remoteID{e.peer.iface.name, r}] = e
	}
	for _, p := range e.qps {
		p.updateFastRecv()
	}
	if e.Life == conn.HalfOpen && !e.M.HalfOpen() {
		e.confirm()
	}
	if e.M.PeerDrained() {
		f.Schedule(e)
	}
}

// reconnect restarts the connection under a new identifier. Nothing is lost: no message was sent or
// received on a QP that the peer has discarded.
func (e *ep) reconnect() {
	if !e.Has(conn.Opened) {
		e.f.FailLater(e, conn.ErrPeerClosed)
		return
	}
	for _, p := range e.qps {
		e.f.startDraining(p)
	}
	e.qps, e.txQueue = nil, nil
	e.dropID()
	e.newMachine()
	e.updateFastPath()
	e.Add(conn.Initiated)
	if e.pend.Len() > 0 {
		e.ensureConnected()
	}
}

// sendMsg sends a message of the state machine as a datagram.
func (e *ep) sendMsg(m machine.Msg) {
	n := connMsg{msg: m}
	switch {
	case m.Kind == machine.MsgOpen && e.Has(conn.Separate):
		n.flags = flagSeparate
	case m.Kind == machine.MsgReset && errors.Is(e.Err, errAccessAtResponder):
		n.flags = flagAccessError
	}
	if m.CarriesQPInfo() {
		p := e.qp(m.Pair)
		if p == nil {
			return
		}
		n.qpInfo = p.local
	}
	e.f.sendConnMsg(&n, &e.peer, e.ah)
}

// Connecting implements uct.Handshaker.
func (e *ep) Connecting() bool {
	e.f.EnterWait()
	defer e.f.Leave()
	return !e.Life.Over() && e.txQueue == nil && !e.Has(everConnected)
}

// hasPending reports whether operations wait for the connection, or are in flight on it.
func (e *ep) hasPending() bool {
	return e.pend.Len() > 0 || e.hasReserved || e.txQueue != nil && e.txQueue.head != e.txQueue.tail
}

// Anyone can send a datagram to the QP for connection messages. So a message is accepted only
// from the QP and port that it names (parseConnMsg), and a reply goes to them alone. An OPEN may
// still come from a sender that does not receive. The connection is therefore half-open until a
// message shows that the peer receives: it holds a QP but no send queue, its number is bounded,
// and a newer one may evict it (nic.HalfOpen).

// maxProbes is the maximum number of liveness probes that an OPEN of a peer causes.
const maxProbes = 16

// parseConnMsg decodes the datagram after the GRH. It rejects a message whose sender is not the
// interface that the message names: the reply would go to a third party. A message that is refused
// by a [protocol.Error] fails the connection that it names. An OPEN of that kind gets REJECT, so that
// the initiator fails at once.
func (f *iface) parseConnMsg(n *connMsg, wc *verbs.WC) error {
	if wc.Status != verbs.WCSuccess || wc.Len < grhLen || wc.Len > grhLen+connMsgMaxLen {
		return fmt.Errorf("datagram of %d bytes: %w", wc.Len, ucs.ErrInvalid)
	}
	b := f.ud.rx.Bytes(uint32(wc.ID))
	err := n.parse(b[grhLen:wc.Len])
	refusal, refused := errors.AsType[*protocol.Error](err)
	if err != nil && (!refused || n.from == peer{}) {
		return err
	}
	if a := n.from.address(); !f.d.SentFrom(&a, wc, b) {
		return fmt.Errorf("connection message names queue pair %#x at %v, port %d, which did not send it: %w",
			uint32(a.QPN), a.Port.GID.Addr(), a.Port.LID, ucs.ErrInvalid)
	}
	switch e := f.byLocalID[n.msg.To]; {
	case !refused:
	case e != nil && e.peer == n.from && !e.Life.Over():
		f.FailLater(e, refusal)
	case n.msg.Kind == machine.MsgOpen:
		f.stats.Inc(statRefused)
		m := machine.Msg{Kind: machine.MsgReject, Worker: f.worker, From: conn.NewID(), To: n.msg.From}
		f.sendConnMsgTo(&connMsg{msg: m, refused: refusal.Features}, &n.from)
	}
	return err
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
	if m.Kind == machine.MsgReset && !n.has(flagAccessError) { // the ACK of a RESET with flag refused
		r := &f.accessErrors
		r.unacked = slices.DeleteFunc(r.unacked, func(x unackedReset) bool {
			return x.msg.From == m.To && x.msg.To == m.From && x.to == n.from
		})
	}
	if n.has(flagDrained) {
		if e == nil {
			return
		}
		id, found := m.Pair.Flip(), false
		for _, ps := range [...][]*connQP{e.qps, f.draining} {
			for _, p := range ps {
				if p.e == e && p.id == id {
					p.peerDrained, found = true, true
				}
			}
		}
		if n.has(flagWantReply) && !found { // this side has destroyed the QP already
			e.sendDrained(id, false)
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
	var flags msgFlags
	if ok && slices.ContainsFunc(f.accessErrors.unacked, func(x unackedReset) bool { return x.msg == a && x.to == n.from }) {
		flags = flagAccessError
	}
	if n.has(flagAccessError) || n.has(flagShutdown) && n.msg.To != 0 {
		a, ok, flags = machine.Msg{Kind: machine.MsgReset, Worker: f.worker, From: n.msg.To, To: n.msg.From}, true, 0
	}
	if ok {
		f.sendConnMsgTo(&connMsg{msg: a, flags: flags}, &n.from)
	}
}

// acceptOpen returns the connection for an OPEN of a peer: one of this side's whose OPEN crosses it,
// else an unused one with an endpoint, else a new half-open one. nil: the OPEN is dropped.
func (f *iface) acceptOpen(n *connMsg) *ep {
	if ok, _ := f.portAddr.Reaches(&n.from.port); !ok {
		return nil
	}
	var unused *ep
	for _, e := range f.ByPeer[n.from.iface.name] {
		switch {
		case n.has(flagSeparate) || e.Life.Over() || e.peer != n.from: // the interface name in the OPEN may be forged
		case e.M.State() == machine.StateOpening && !e.Has(conn.Separate):
			f.stats.Inc(statCrossed)
			f.Count(e)
			return e
		case e.M.State() == machine.StateIdle && e.Has(conn.Opened) && unused == nil:
			unused = e
		}
	}
	if unused != nil {
		f.stats.Inc(statAccepted)
		f.Count(unused)
		return unused
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

	// The peer may have lost its other connections with this side. Send READY on each: the peer
	// replies with RESET if it does not know the connection. A lost connection so fails before this
	// side sends a reply on it to a message that arrived on e. Only the maxProbes oldest connections
	// are probed. Connections that are not confirmed are not: their OPENs may be forged, and the
	// probe would go to a third party.
	es := f.ByPeer[e.peer.iface.name]
	for _, o := range es[:min(len(es), maxProbes)] {
		if o != e && !o.Life.Over() && o.M.Confirmed() {
			o.sendMsg(machine.Msg{Kind: machine.MsgReady, Worker: f.worker, From: o.M.Conn(), To: o.M.Remote()})
		}
	}
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

// uncountAccepted undoes Count. A closed endpoint with operations in flight stays counted: Progress is
// called for active ifaces only, and reports their events.
func (f *iface) uncountAccepted(e *ep) {
	if e.Has(conn.Opened) || !f.hasInFlight(e) {
		f.Uncount(e)
	}
}

// handleMsg processes a message of the peer's state machine.
func (e *ep) handleMsg(n *connMsg) {
	if n.has(flagShutdown) {
		e.f.FailLater(e, conn.ErrPeerClosed)
		e.f.replyStray(n)
		return
	}
	if n.has(flagAccessError) {
		if n.msg.From != e.M.Remote() { // for an earlier connection
			return
		}
		e.f.FailLater(e, errAccessAtRequester)
		e.f.replyStray(n)
		return
	}
	if n.refused != 0 && e.M.State() == machine.StateOpening {
		e.f.FailLater(e, &protocol.Error{Format: &connFormat, Version: connFormat.Version, Features: n.refused, Local: true})
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

// Suspend implements conn.Connection.
func (e *ep) Suspend() {
	e.f.stats.Inc(statSuspends)
	e.step(machine.Event{Kind: machine.EventSuspend})
}

// activeConns returns the number of connections whose QP is in use by both sides.
func (f *iface) activeConns() int { return f.numQPs - len(f.draining) - f.halfOpen.Len() }

// Active implements uct.ConnectionCache.
func (f *iface) Active() int {
	f.EnterWait()
	defer f.Leave()
	return f.activeConns()
}

// Candidates implements uct.ConnectionCache.
func (f *iface) Candidates(now ucs.Time, since []ucs.Time) []ucs.Time {
	f.EnterWait()
	defer f.Leave()
	return f.Table.Candidates(now, since)
}

// Evict implements uct.ConnectionCache.
func (f *iface) Evict(now, t ucs.Time, most int) int {
	f.EnterWait()
	defer f.Leave()
	return f.Table.Evict(now, t, most)
}

// requestCompletion requests a completion for unsignaled operations in flight.
func (e *ep) requestCompletion() {
	if q := e.txQueue; q != nil && q.head != q.tail && q.signaled == 0 && q.room() {
		q.postZeroWrite(0)
	}
}
