package rc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// The life of a connection: newEP adds it, without a QP. connect sends OPEN when an operation
// needs it; for an OPEN of a peer, iface.acceptOpen does the same (conn_recv.go). The state machine
// (wireup/machine) then decides about all steps; step executes them: it creates and connects
// QPs, switches the directions, retires QPs (migrate.go) and reports the end (service.go).
//
// A connection has an identifier on each side. iface.byLocalID finds it by the local one and
// iface.byRemoteID by the peer's. iface.ByPeer lists all connections with an interface, oldest first.

// newEP adds a connection that has no QP yet.
func (f *iface) newEP(p *peer) (*ep, error) {
	ah, err := f.pd.CreateAH(p.port.AH(f.port))
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
	var buf [8]machine.Action
	for _, a := range e.M.Step(ucs.Now(), ev, buf[:0]) {
		e.apply(a)
	}
	f := e.f
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

func (e *ep) apply(a machine.Action) {
	switch a.Kind {
	case machine.ActionCreate:
		p, err := e.f.newQP(e)
		if err == nil {
			p.id = a.Pair
			e.qps = append(e.qps, p)
			err = p.allocQueue()
		}
		if err != nil {
			e.f.FailLater(e, err)
		}
	case machine.ActionConnect:
		if p := e.qp(a.Pair); p != nil {
			if err := p.connect(e.remoteQP, &e.peer.port); err != nil {
				e.f.FailLater(e, fmt.Errorf("%w: connect queue pair: %w", ucs.ErrPeerFailed, err))
			}
		}
	case machine.ActionSend:
		e.sendMsg(a.Msg)
	case machine.ActionSwitchRx:
		e.switchRx(a.Pair)
	case machine.ActionSwitchTx:
		e.switchTx(a.Pair)
	case machine.ActionRetire:
		e.retire(a.Pair)
	case machine.ActionClose:
		e.f.Schedule(e)
	case machine.ActionFail:
		e.machineFailed(a.Reason)
	}
}

// machineFailed ends or restarts the connection for the reason that the machine reports.
func (e *ep) machineFailed(r machine.Reason) {
	switch r {
	case machine.ReasonStale:
		e.reconnect()
	case machine.ReasonRejected:
		e.f.FailLater(e, fmt.Errorf("%w: it refused the connection", ucs.ErrUnreachable))
	case machine.ReasonPeerLost:
		e.f.FailLater(e, conn.PeerFailed("it does not answer, or has lost the connection"))
	case machine.ReasonProtocolError:
		e.f.FailLater(e, conn.ErrProtocol)
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
	n := connMsg{
		msg: m, separate: e.Has(conn.Separate) && m.Kind == machine.MsgOpen,
		accessError: m.Kind == machine.MsgReset && errors.Is(e.Err, errAccessAtResponder),
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
	e.f.enterWait()
	defer e.f.leave()
	return !e.Life.Over() && e.txQueue == nil && !e.Has(everConnected)
}

// hasPending reports whether operations wait for the connection, or are in flight on it.
func (e *ep) hasPending() bool {
	return e.pend.Len() > 0 || e.hasReserved || e.txQueue != nil && e.txQueue.head != e.txQueue.tail
}
