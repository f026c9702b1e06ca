package shm

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// step passes an event to the connection's machine and executes the resulting actions: it makes,
// sends, switches to or unmaps a ring pair.
//
// Invariant: tx and rx always point into mapped memory, and a reservation stays valid until
// it is committed. SwitchTx and Retire are therefore deferred while a reservation is open, and
// so are all later ones, which keeps their order. CommitAM then publishes the message in the
// old ring, before the switch-over marker. The first SwitchRx of a connection is delayed too
// (order.go).
func (e *ep) step(ev machine.Event) {
	f := e.f
	var buf [8]machine.Action
	for _, a := range e.M.Step(0, ev, buf[:0]) {
		switch a.Kind {
		case machine.ActionCreate:
			e.newPair.id = a.Pair
			e.addPair(e.newPair)
			e.newPair = nil
		case machine.ActionSend:
			e.sendMsg(a.Msg)
		case machine.ActionSwitchRx:
			if e.rxPair != machine.None || e.HasReceived() {
				e.switchRx(a.Pair)
				continue
			}
			f.firstReads = append(f.firstReads, e) // service begins to read
			f.requestService()
		case machine.ActionSwitchTx, machine.ActionRetire:
			if e.resLen < 0 && len(e.deferred) == 0 {
				e.applyTx(a)
				continue
			}
			if len(e.deferred) == 0 {
				f.deferred = append(f.deferred, e)
			}
			e.deferred = append(e.deferred, a) // a reservation is open in the ring
			f.requestService()
		case machine.ActionClose:
			f.Schedule(e)
		case machine.ActionFail:
			f.FailLater(e, conn.ErrProtocol)
		case machine.ActionConnect: // only with machine.Config.ThreeWay
		}
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

// sendMsg sends message m of the machine. OPEN is not sent here but by dial. A peer that is gone
// may have sent messages before, so service ends the connection later.
func (e *ep) sendMsg(m machine.Msg) {
	sock := e.sock
	if m.Kind == machine.MsgOpenCrossed {
		sock = e.crossedSock
	}
	if m.Kind == machine.MsgOpen || sock == nil || e.Life == conn.HungUp {
		return
	}
	h := e.f.newConnMsg(msgKind(slices.Index(machineKinds[:], m.Kind)), e.Slot())
	h.setMachineMsg(m)
	var fds []int
	switch m.Kind {
	case machine.MsgAccept, machine.MsgOpenCrossed:
		fds = append(fds, e.f.pageOf(e.Slot()).seg.FD(), e.f.event.Share())
		if old := e.pair(m.Old); old != nil {
			h.setLayout(old.layout)
			fds = append(fds, old.seg.FD())
		}
		fault.At(fault.Accept)
	case machine.MsgMigrate:
		p := e.pair(m.Pair)
		h.setLayout(p.layout)
		fds = append(fds, p.seg.FD())
		fault.At(fault.Grow)
	case machine.MsgMigrateAck:
		e.f.stats.Inc(statMigrated)
	default:
	}
	err := sock.Send(h.append(nil), fds...)
	if m.Kind == machine.MsgMigrate && err == nil {
		err = e.pair(m.Pair).seg.CloseFD()
	}
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
// machine gets EventAttachFailed and sends MIGRATE_NAK. A ring pair that the machine does not use
// afterwards is unmapped.
//
// Ownership: handleMsg owns fds.
func (e *ep) handleMsg(h connMsg, fds []int) error {
	m, f := h.machineMsg(), e.f
	ev := machine.Event{Kind: machine.EventReceive, Msg: m, Busy: e.hasPending()}
	var attached *pair
	wantFDs := 0
	switch {
	case h.kind == kindAccept && h.old != machine.None:
		wantFDs = 3
	case h.kind == kindAccept, h.kind == kindOpenCrossed:
		wantFDs = 2
	case h.kind == kindMigrate:
		wantFDs = 1
	}
	if len(fds) != wantFDs {
		shmem.CloseFDs(fds...)
		return fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	}
	switch m.Kind {
	case machine.MsgAccept, machine.MsgOpenCrossed:
		if err := e.attachPeer(h, fds[0], fds[1]); err != nil {
			shmem.CloseFDs(fds[2:]...)
			return err
		}
		if m.Kind == machine.MsgOpenCrossed {
			break
		}
		fds = fds[2:]
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
			break
		}
		// The connects crossed: ACCEPT brings the ring pair of the peer's own connect.
		f.Count(e)
		if e.crossedSock != nil { // this side has received that OPEN
			shmem.CloseFDs(fds...)
			err := e.crossedSock.Close()
			e.crossedSock = nil
			if err != nil {
				return err
			}
			break
		}
		p, err := mapPair(h.old.Flip(), fds[0], h.layout())
		if err != nil {
			shmem.CloseFDs(fds...)
			return err
		}
		e.addPair(p)
		e.merged = h.conn
		f.merged[h.conn] = struct{}{} // the OPEN of that connect may still arrive
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

// hasPending reports whether the connection is in use or has unread messages.
func (e *ep) hasPending() bool { return e.pend.Len() > 0 || e.resLen >= 0 || e.ready() }

// layout returns the ring geometry in the message.
func (h *connMsg) layout() ring.Layout { return ring.Layout{Cells: int(h.cells), Bulk: int(h.bulk)} }

// setLayout stores a ring geometry in the message.
func (h *connMsg) setLayout(l ring.Layout) { h.cells, h.bulk = uint32(l.Cells), uint32(l.Bulk) }

// maxRead is the maximum number of messages read from a socket at a time. A peer that
// floods its socket thus does not delay others.
const maxRead = 64

// readSocket handles the messages on the socket, at most maxRead. The socket stays readable
// if messages are left.
func (e *ep) readSocket() {
	for range maxRead {
		if e.Life != conn.Open || e.sock == nil || !e.readMsg(e.sock) {
			return
		}
	}
}

// readMsg handles one message. It returns false if there is none or the connection is
// over.
func (e *ep) readMsg(sock *shmem.Conn) bool {
	var b [maxConnMsg]byte
	n, fds, err := sock.Recv(b[:])
	switch {
	case errors.Is(err, shmem.ErrWouldBlock):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		if e.f.connecting[e.peer] == e && sock == e.sock {
			// The peer may have kept its own connect, and closed both. Then its OPEN, and what
			// follows, has arrived.
			if e.f.openDepth > 0 {
				return false // acceptOpen has an OPEN; the end is read again
			}
			if e.f.acceptAll(); e.sock != sock {
				return true
			}
		}
		e.markPeerGone()
		return false
	case err == nil, errors.Is(err, shmem.ErrDescriptors) && n >= connMsgLen:
		err = e.dispatchConnMsg(b[:n], fds, err)
	}
	if err != nil {
		e.f.FailLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
	return err == nil
}

// dispatchConnMsg handles one message. lost is not nil if the kernel dropped the descriptors of the
// message, because this process has no free ones. Only MIGRATE may fail so: the machine rejects it; and
// what only speeds up copies.
//
// A peer that sends CLOSE or SHUTDOWN has ended its direction. This side ends the other, too, if
// the peer initiated the connection and no endpoint is open on it.
//
// Ownership: dispatchConnMsg owns fds.
func (e *ep) dispatchConnMsg(b []byte, fds []int, lost error) error {
	h, err := parseConnMsg(b)
	switch {
	case err != nil:
	case lost != nil && h.kind == kindMigrate:
		e.step(machine.Event{Kind: machine.EventAttachFailed, Msg: h.machineMsg()})
		return nil
	case lost != nil && h.kind >= kindCopyTable:
		return nil // the messages are copied in other ways
	case lost != nil:
		err = fmt.Errorf("descriptors of a message of kind %d: %w", h.kind, lost)
	case h.kind == kindOpen, h.kind == kindShutdown && e.Has(shutdownReceived), h.kind == kindClose && e.Has(closeReceived):
		err = fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	case h.kind == kindReject:
		e.f.stats.Inc(statRefused)
		err = fmt.Errorf("it rejected the connection: %s", h.reason)
	case h.kind == kindCopyTable:
		return e.handleCopyTable(fds)
	case h.kind == kindCopyRegion:
		return e.handleCopyRegion(h.region, fds)
	case h.kind == kindShutdown && len(fds) == 0:
		e.Add(closeReceived | shutdownReceived)
	case h.kind == kindShutdown:
		err = fmt.Errorf("SHUTDOWN with %d descriptors: %w", len(fds), ucs.ErrInvalid)
	default:
		if err := e.handleMsg(h, fds); err != nil || h.kind != kindClose {
			return err
		}
		e.Add(closeReceived)
	}
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	if e.Facts&(conn.Initiated|conn.Opened) == 0 {
		e.step(machine.Event{Kind: machine.EventClose})
	}
	e.f.Schedule(e)
	return nil
}

// attachPeer maps the peer's doorbell page, opens its wake pipe, and writes the doorbell for
// messages sent before. It owns both descriptors.
func (e *ep) attachPeer(h connMsg, pageFD, wakeFD int) error {
	if e.peerPage != nil {
		shmem.CloseFDs(pageFD, wakeFD)
		return nil
	}
	seg, err := shmem.Map(pageFD, pageSize)
	if err != nil {
		shmem.CloseFDs(pageFD, wakeFD)
		return fmt.Errorf("peer's doorbell page: %w", err)
	}
	if err := seg.CloseFD(); err != nil {
		shmem.CloseFDs(wakeFD)
		return errors.Join(err, seg.Close())
	}
	in := newDoorbellPage(seg)
	ev, err := shmem.OpenWakeWriter(wakeFD)
	if err != nil {
		shmem.CloseFDs(wakeFD)
		return errors.Join(err, seg.Close())
	}
	e.peerPage, e.peerSlot, e.peerEvent = in, int(h.slot), ev
	if h.features&e.f.features&featureMailbox != 0 {
		e.mail.state = mailOff
	}
	switch {
	case h.features&e.f.features&featureCopies == 0:
		e.copies.state = copiesRefused
	case e.f.copies&copiesByRead == 0:
		e.copies.state = copiesMapped
	}
	e.needsBarrier = (e.f.fenceFlag|h.flags)&flagFence != 0
	e.rx.SetFence(e.needsBarrier)
	if !e.needsBarrier {
		e.armed = in.armed
	}
	e.ringDoorbell()
	return nil
}

// peerLost handles the end of the peer, however it was detected. It first reads the
// messages left on the socket: the end may have been orderly.
func (e *ep) peerLost() {
	for e.Life == conn.Open && e.sock != nil && e.readMsg(e.sock) {
	}
	e.markPeerGone()
}

// markPeerGone marks the peer as gone; service drains the rings before it ends the
// connection. It reads the messages left on the socket of a crossed connect, too.
func (e *ep) markPeerGone() {
	if sock := e.crossedSock; sock != nil && e.Life == conn.Open {
		e.crossedSock = nil
		for e.Life == conn.Open && e.readMsg(sock) {
		}
		_ = sock.Close() // the connection is over
	}
	if e.Life.Step(conn.HangUp) {
		e.f.Schedule(e)
	}
}
