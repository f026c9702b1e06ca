package rc

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// The life of a connection: newEP adds it, without a QP. connect sends OPEN when an operation
// needs it; for an OPEN of a peer, iface.acceptOpen does the same (conn_recv.go). The state machine
// (wireup/machine) then decides about all steps; step executes them: it creates and connects
// QPs, switches the directions, retires QPs (migrate.go) and reports the end (service.go).
//
// A connection has an identifier on each side. iface.byLocalID finds it by the local one and
// iface.byRemoteID by the peer's. iface.byPeer lists all connections with an interface, oldest first.

// newEP adds a connection that has no QP yet.
func (f *iface) newEP(p *peer) (*ep, error) {
	ah, err := f.pd.CreateAH(p.port.AH(f.port))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrUnreachable, err)
	}
	e := &ep{f: f, peer: *p, ah: ah, q: &f.nullQueue}
	if n := len(f.freeSlot); n > 0 {
		e.slot, f.freeSlot = f.freeSlot[n-1], f.freeSlot[:n-1]
		f.eps[e.slot] = e
	} else {
		e.slot = len(f.eps)
		f.eps = append(f.eps, e)
	}
	e.source = uint32(e.slot + 1)
	f.byPeer[p.iface.name] = append(f.byPeer[p.iface.name], e)
	e.newMachine()
	return e, nil
}

// newMachine sets a new state machine with a new random identifier.
func (e *ep) newMachine() {
	f := e.f
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	e.m = machine.New(machine.Config{
		Worker: f.worker, Conn: binary.LittleEndian.Uint64(b[:]) | 1, ThreeWay: true, Timeout: f.retryInterval, Limit: f.connectLimit,
	})
	f.byLocalID[e.m.Conn()] = e
}

// dropID removes the identifiers of both sides from the tables.
func (e *ep) dropID() {
	delete(e.f.byLocalID, e.m.Conn())
	delete(e.f.byRemoteID, remoteID{e.peer.iface.name, e.m.Remote()})
}

// unregister removes the connection from all tables.
func (f *iface) unregister(e *ep) {
	e.dropID()
	name := e.peer.iface.name
	es := slices.DeleteFunc(f.byPeer[name], func(o *ep) bool { return o == e })
	if len(es) == 0 {
		delete(f.byPeer, name)
	} else {
		f.byPeer[name] = es
	}
	f.eps[e.slot] = nil
	f.freeSlot = append(f.freeSlot, e.slot)
}

// adoptable reports whether NewEndpoint may use the connection, which the peer has opened.
func (e *ep) adoptable() bool {
	return !e.opened && !e.initiated && e.failure == nil && !e.m.Closing() && !e.m.PeerClosed() && e.m.State() == machine.StateOpen &&
		int(e.peer.iface.seg) >= e.f.seg
}

// ensureConnected opens the connection, or resumes it if it is suspended.
func (e *ep) ensureConnected() {
	if e.failure != nil {
		return
	}
	switch {
	case e.m.State() == machine.StateIdle:
		e.connect()
	case e.m.State() == machine.StateOpen && e.m.TxPair() == machine.None && e.m.TxPending() == machine.None:
		e.step(machine.Event{Kind: machine.EventResume})
	}
}

// connect sends an OPEN message. The connection is separate, and so not merged with an OPEN of
// the peer, if the peer is this interface itself. It is separate too if the peer may not know
// yet of another connection between the two.
func (e *ep) connect() {
	f := e.f
	name := e.peer.iface.name
	e.separate = name == f.self.iface.name
	for _, o := range f.byPeer[name] {
		if o != e && o.m.State() != machine.StateIdle && !o.m.Confirmed() {
			e.separate = true
		}
	}
	f.stats.Inc(statConnected)
	e.step(machine.Event{Kind: machine.EventConnect})
}

// step passes an event to the state machine and executes the actions that it returns.
func (e *ep) step(ev machine.Event) {
	var buf [8]machine.Action
	for _, a := range e.m.Step(ucs.Now(), ev, buf[:0]) {
		e.apply(a)
	}
	f := e.f
	e.setTimer()
	if r := e.m.Remote(); r != 0 && !e.released {
		f.byRemoteID[remoteID{e.peer.iface.name, r}] = e
	}
	for _, p := range e.qps {
		p.updateFastRecv()
	}
	if e.halfOpen && !e.m.HalfOpen() {
		e.confirm()
	}
	if e.m.PeerDrained() {
		f.scheduleService(e)
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
			e.f.failLater(e, err)
		}
	case machine.ActionConnect:
		if p := e.qp(a.Pair); p != nil {
			if err := p.connect(e.remoteQP, &e.peer.port); err != nil {
				e.f.failLater(e, fmt.Errorf("%w: connect queue pair: %w", ucs.ErrPeerFailed, err))
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
		e.f.scheduleService(e)
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
		e.f.failLater(e, fmt.Errorf("%w: it refused the connection", ucs.ErrUnreachable))
	case machine.ReasonPeerLost:
		e.f.failLater(e, failErr("it does not answer, or has lost the connection"))
	case machine.ReasonProtocolError:
		e.f.failLater(e, failErr("its connection messages violate the protocol"))
	}
}

// reconnect restarts the connection under a new identifier. Nothing is lost: no message was sent or
// received on a QP that the peer has discarded.
func (e *ep) reconnect() {
	if !e.opened {
		e.f.failLater(e, errPeerClosed)
		return
	}
	for _, p := range e.qps {
		e.f.startDraining(p)
	}
	e.qps, e.txQueue = nil, nil
	e.dropID()
	e.newMachine()
	e.updateFastPath()
	e.initiated = true
	if e.pend.Len() > 0 {
		e.ensureConnected()
	}
}

// sendMsg sends a message of the state machine as a datagram.
func (e *ep) sendMsg(m machine.Msg) {
	n := connMsg{
		msg: m, separate: e.separate && m.Kind == machine.MsgOpen,
		accessError: m.Kind == machine.MsgReset && errors.Is(e.failure, errAccessAtResponder),
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
	return e.failure == nil && e.txQueue == nil && !e.everConnected
}

// hasPending reports whether operations wait for the connection, or are in flight on it.
func (e *ep) hasPending() bool {
	return e.pend.Len() > 0 || e.hasReserved || e.txQueue != nil && e.txQueue.head != e.txQueue.tail
}
