package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// step passes an event to the connection's machine and executes the resulting actions.
func (e *ep) step(ev machine.Event) {
	var buf [8]machine.Action
	for _, a := range e.M.Step(0, ev, buf[:0]) {
		e.apply(a)
	}
}

// apply executes an action of the machine: it makes, sends, switches to or unmaps a ring pair.
//
// Invariant: tx and rx always point into mapped memory, and a reservation stays valid until
// it is committed. Write and Retire are therefore deferred while a reservation is open, and
// so are all later ones, which keeps their order. CommitAM then publishes the message in the
// old ring, before the switch-over marker. The first Read of a connection is delayed too
// (order.go).
func (e *ep) apply(a machine.Action) {
	switch a.Kind {
	case machine.ActionCreate:
		e.newPair.id = a.Pair
		e.addPair(e.newPair)
		e.newPair = nil
	case machine.ActionSend:
		e.sendMsg(a.Msg)
	case machine.ActionSwitchRx:
		if e.rxPair == machine.None && !e.HasReceived() {
			e.scheduleRead()
			return
		}
		e.switchRx(a.Pair)
	case machine.ActionSwitchTx, machine.ActionRetire:
		if e.resLen >= 0 || len(e.deferred) > 0 {
			e.f.deferAction(e, a) // a reservation is open in the ring
			return
		}
		e.applyTx(a)
	case machine.ActionClose:
		e.f.Schedule(e)
	case machine.ActionFail:
		e.f.FailLater(e, conn.ErrProtocol)
	case machine.ActionConnect: // only with machine.Config.ThreeWay
	}
}

// applyTx executes an action that changes or unmaps the ring pair of tx.
func (e *ep) applyTx(a machine.Action) {
	if a.Kind == machine.ActionSwitchTx {
		e.switchTx(a.Pair)
		return
	}
	e.dropPair(a.Pair)
}

// deferAction queues action a of e until e's reservation has ended.
func (f *iface) deferAction(e *ep, a machine.Action) {
	if len(e.deferred) == 0 {
		f.deferred = append(f.deferred, e)
	}
	e.deferred = append(e.deferred, a)
	f.requestService()
}

// runDeferred executes the deferred actions of connections whose reservation has ended.
func (f *iface) runDeferred() {
	es := f.deferred
	f.deferred = nil
	for _, e := range es {
		switch {
		case e.Life == conn.Released:
		case e.resLen >= 0 && !e.Life.Over():
			f.deferred = append(f.deferred, e)
			f.serviceNeeded = true
		default:
			e.runDeferred()
		}
	}
}

// runDeferred executes the deferred actions of e.
func (e *ep) runDeferred() {
	as := e.deferred
	e.deferred = nil
	for _, a := range as {
		if !e.Life.Over() {
			e.applyTx(a)
		}
	}
}

// sendMsg sends message m of the machine. OPEN is not sent here but by dial.
func (e *ep) sendMsg(m machine.Msg) {
	sock := e.sock
	if m.Kind == machine.MsgOpenCrossed {
		sock = e.crossedSock
	}
	if m.Kind == machine.MsgOpen || sock == nil || e.Life == conn.HungUp {
		return
	}
	h := e.f.newConnMsg(kindOf(m.Kind), e.Slot())
	h.setMachineMsg(m)
	var fds []int
	switch m.Kind {
	case machine.MsgAccept, machine.MsgOpenCrossed:
		fds = append(fds, e.f.pageOf(e.Slot()).seg.FD(), e.f.event.Share())
		if old := e.pair(m.Old); old != nil {
			h.setLayout(old.layout)
			fds = append(fds, old.seg.FD())
		}
		if fault.Enabled {
			fault.At(fault.Accept)
		}
	case machine.MsgMigrate:
		p := e.pair(m.Pair)
		h.setLayout(p.layout)
		fds = append(fds, p.seg.FD())
		if fault.Enabled {
			fault.At(fault.Grow)
		}
	case machine.MsgMigrateAck:
		e.f.stats.Inc(statMigrated)
	default:
	}
	err := sock.Send(h.append(nil), fds...)
	if m.Kind == machine.MsgMigrate && err == nil {
		err = e.pair(m.Pair).seg.CloseFD()
	}
	e.handleSendError(m, err)
}

// handleSendError handles err, the result of sending m. A peer that is gone may have sent
// messages before, so the connection is settled later.
func (e *ep) handleSendError(m machine.Msg, err error) {
	switch {
	case err == nil, m.Kind == machine.MsgClose && errors.Is(err, shmem.ErrWouldBlock):
	case m.Kind == machine.MsgOpenCrossed: // the peer's connect lost the crossing: it has closed that socket
	case errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		e.Add(sendFailed)
		e.f.Schedule(e)
	case m.Kind == machine.MsgMigrate: // too many descriptors in flight: as after MIGRATE_NAK
		e.unsentMigrate = m.Pair
		e.f.Schedule(e)
	default:
		e.f.FailLater(e, fmt.Errorf("%w: send %v: %w", ucs.ErrPeerFailed, m.Kind, err))
	}
}

// handleMsg handles a message of the peer's machine: it maps the ring pair that the message
// brings, then passes the message to the machine. If the ring pair cannot be mapped, the
// machine gets Unable and sends MIGRATE_NAK. A ring pair that the machine does not use
// afterwards is unmapped.
//
// Ownership: listen owns fds.
func (e *ep) handleMsg(h connMsg, fds []int) error {
	m := h.machineMsg()
	ev := machine.Event{Kind: machine.EventReceive, Msg: m, Busy: e.hasPending()}
	var attached *pair
	want := h.numFDs()
	if len(fds) != want {
		shmem.CloseFDs(fds...)
		return fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	}
	switch m.Kind {
	case machine.MsgAccept, machine.MsgOpenCrossed:
		if err := e.attachPeer(h, fds[0], fds[1]); err != nil {
			shmem.CloseFDs(fds[2:]...)
			return err
		}
		if err := e.handleAccept(h, fds[2:]); err != nil {
			return err
		}
	case machine.MsgMigrate:
		p, err := mapPair(m.Pair.Flip(), fds[0], h.layout())
		if err == nil && (p.layout.MaxBulk() < e.maxBulk || e.pair(p.id) != nil) {
			err = errors.Join(ucs.ErrInvalid, p.seg.Close())
			fds = nil
		}
		if err != nil {
			shmem.CloseFDs(fds...)
			ev.Kind = machine.EventAttachFailed
			break
		}
		e.addPair(p)
		attached = p
	default:
	}
	e.step(ev)
	if m.Kind == machine.MsgMigrateNak {
		e.handleMigrateNak()
	}
	if attached != nil && !e.M.Uses(attached.id) {
		e.dropPair(attached.id)
	}
	return nil
}

// handleAccept handles the ring pair of the peer's own connect, which ACCEPT brings if the
// connects crossed. It closes fds if this side knows the ring pair already.
func (e *ep) handleAccept(h connMsg, fds []int) error {
	if h.kind != kindAccept {
		return nil
	}
	f := e.f
	if e.M.State() != machine.StateOpening {
		shmem.CloseFDs(fds...)
		return fmt.Errorf("second ACCEPT: %w", ucs.ErrInvalid)
	}
	if f.connecting[e.peer] == e {
		delete(f.connecting, e.peer)
	}
	if p := e.pair(h.pair.Flip()); p != nil {
		if err := p.seg.CloseFD(); err != nil {
			return err
		}
	}
	if len(fds) == 0 {
		return nil
	}
	f.Count(e)
	if e.crossedSock != nil {
		shmem.CloseFDs(fds...)
		err := e.crossedSock.Close()
		e.crossedSock = nil
		return err
	}
	p, err := mapPair(h.old.Flip(), fds[0], h.layout())
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	e.addPair(p)
	e.merged = h.conn
	f.merged[h.conn] = struct{}{} // the OPEN of that connect may still arrive
	return nil
}

// hasPending reports whether the connection is in use or has unread messages.
func (e *ep) hasPending() bool { return e.pend.Len() > 0 || e.resLen >= 0 || e.rx.Ready() }

// layout returns the ring geometry in the message.
func (h *connMsg) layout() ring.Layout { return ring.Layout{Cells: int(h.cells), Bulk: int(h.bulk)} }

// setLayout stores a ring geometry in the message.
func (h *connMsg) setLayout(l ring.Layout) { h.cells, h.bulk = uint32(l.Cells), uint32(l.Bulk) }
