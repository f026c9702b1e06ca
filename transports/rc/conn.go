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
// needs it; for an OPEN of a peer, iface.greeted does the same (hear.go). The state machine
// (wireup/machine) then decides about all steps; step executes them: it creates and connects
// QPs, switches the directions, retires QPs (move.go) and reports the end (service.go).
//
// A connection has an identifier on each side. iface.conns finds it by the local one and
// iface.remotes by the peer's. iface.byPeer lists all connections with an interface, oldest first.

// newEP adds a connection that has no QP yet.
func (f *iface) newEP(p *peer) (*ep, error) {
	ah, err := f.pd.CreateAH(p.port.AH(f.port))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ucs.ErrUnreachable, err)
	}
	e := &ep{f: f, peer: *p, ah: ah, q: &f.nowhere}
	if n := len(f.freeSlot); n > 0 {
		e.slot, f.freeSlot = f.freeSlot[n-1], f.freeSlot[:n-1]
		f.eps[e.slot] = e
	} else {
		e.slot = len(f.eps)
		f.eps = append(f.eps, e)
	}
	e.source = uint32(e.slot + 1)
	f.byPeer[p.iface.name] = append(f.byPeer[p.iface.name], e)
	e.name()
	return e, nil
}

// name sets a new state machine with a new random identifier.
func (e *ep) name() {
	f := e.f
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	e.m = machine.New(machine.Config{
		Worker: f.worker, Conn: binary.LittleEndian.Uint64(b[:]) | 1, ThreeWay: true, Timeout: f.retryEvery, Limit: f.connectFor,
	})
	f.conns[e.m.Conn()] = e
}

// unname removes the identifiers of both sides from the tables.
func (e *ep) unname() {
	delete(e.f.conns, e.m.Conn())
	delete(e.f.remotes, remote{e.peer.iface.name, e.m.Remote()})
}

// forget removes the connection from all tables.
func (f *iface) forget(e *ep) {
	e.unname()
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

// takeable reports whether NewEndpoint may use the connection, which the peer has opened.
func (e *ep) takeable() bool {
	return !e.opened && !e.initiated && e.dead == nil && !e.m.Closing() && !e.m.PeerClosed() && e.m.State() == machine.StateOpen &&
		int(e.peer.iface.seg) >= e.f.seg
}

// want opens the connection, or resumes it if it is suspended.
func (e *ep) want() {
	if e.dead != nil {
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
		e.do(a)
	}
	f := e.f
	e.time()
	if r := e.m.Remote(); r != 0 && !e.released {
		f.remotes[remote{e.peer.iface.name, r}] = e
	}
	for _, p := range e.pairs {
		p.settle()
	}
	if e.halfOpen && !e.m.HalfOpen() {
		e.confirmed()
	}
	if e.m.PeerDrained() {
		f.settleLater(e)
	}
}

func (e *ep) do(a machine.Action) {
	switch a.Kind {
	case machine.ActionCreate:
		p, err := e.f.makePair(e)
		if err == nil {
			p.id = a.Pair
			e.pairs = append(e.pairs, p)
			err = p.openQueue()
		}
		if err != nil {
			e.f.failLater(e, err)
		}
	case machine.ActionConnect:
		if p := e.pair(a.Pair); p != nil {
			if err := p.join(e.heard, &e.peer.port); err != nil {
				e.f.failLater(e, fmt.Errorf("%w: connect queue pair: %w", ucs.ErrPeerFailed, err))
			}
		}
	case machine.ActionSend:
		e.say(a.Msg)
	case machine.ActionSwitchRx:
		e.readIn(a.Pair)
	case machine.ActionSwitchTx:
		e.sendIn(a.Pair)
	case machine.ActionRetire:
		e.retire(a.Pair)
	case machine.ActionClose:
		e.f.settleLater(e)
	case machine.ActionFail:
		e.failed(a.Reason)
	}
}

// failed ends or restarts the connection for the reason that the machine reports.
func (e *ep) failed(r machine.Reason) {
	switch r {
	case machine.ReasonStale:
		e.stale()
	case machine.ReasonRejected:
		e.f.failLater(e, fmt.Errorf("%w: it refused the connection", ucs.ErrUnreachable))
	case machine.ReasonPeerLost:
		e.f.failLater(e, failErr("it does not answer, or has lost the connection"))
	case machine.ReasonProtocolError:
		e.f.failLater(e, failErr("its connection messages violate the protocol"))
	}
}

// stale restarts the connection under a new identifier. Nothing is lost: no message was sent or
// received on a QP that the peer has discarded.
func (e *ep) stale() {
	if !e.opened {
		e.f.failLater(e, errOrderly)
		return
	}
	for _, p := range e.pairs {
		e.f.linger(p)
	}
	e.pairs, e.out = nil, nil
	e.unname()
	e.name()
	e.gate()
	e.initiated = true
	if e.pend.Len() > 0 {
		e.want()
	}
}

// say sends a message of the state machine as a datagram.
func (e *ep) say(m machine.Msg) {
	n := note{
		msg: m, separate: e.separate && m.Kind == machine.MsgOpen,
		refused: m.Kind == machine.MsgReset && errors.Is(e.dead, errRefused),
	}
	if m.CarriesQPInfo() {
		p := e.pair(m.Pair)
		if p == nil {
			return
		}
		n.half = p.mine
	}
	e.f.send(&n, &e.peer, e.ah)
}

// Connecting implements uct.Handshaker.
func (e *ep) Connecting() bool {
	e.f.enterWait()
	defer e.f.leave()
	return e.dead == nil && e.out == nil && !e.sent
}

// busy reports whether operations wait for the connection, or are in flight on it.
func (e *ep) busy() bool {
	return e.pend.Len() > 0 || e.hasReserved || e.out != nil && e.out.head != e.out.tail
}
