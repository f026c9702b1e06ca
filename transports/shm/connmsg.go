package shm

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

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
		e.markPeerGone()
		return false
	case errors.Is(err, shmem.ErrDescriptors) && n == connMsgLen:
		err = e.dispatchWithoutFDs(b[:n]) // this process is out of descriptors
	case err == nil:
		err = e.dispatchConnMsg(b[:n], fds)
	}
	if err != nil {
		e.f.FailLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
	return err == nil
}

// dispatchConnMsg handles one message. It owns fds.
func (e *ep) dispatchConnMsg(b []byte, fds []int) error {
	h, err := parseConnMsg(b)
	switch {
	case err != nil:
	case h.kind == kindOpen, h.kind == kindShutdown && e.Has(shutdownReceived), h.kind == kindClose && e.Has(closeReceived):
		err = fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	case h.kind == kindReject:
		e.f.stats.Inc(statRefused)
		err = fmt.Errorf("it rejected the connection: %s", h.reason)
	case h.kind == kindShutdown && len(fds) == 0:
		e.Add(closeReceived | shutdownReceived)
	case h.kind == kindShutdown:
		err = fmt.Errorf("SHUTDOWN with %d descriptors: %w", len(fds), ucs.ErrInvalid)
	default:
		return e.dispatchMachineMsg(h, fds)
	}
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	e.handlePeerClose()
	return nil
}

// dispatchMachineMsg handles a message of the peer's machine. It owns fds.
func (e *ep) dispatchMachineMsg(h connMsg, fds []int) error {
	if err := e.handleMsg(h, fds); err != nil {
		return err
	}
	if h.kind == kindClose {
		e.Add(closeReceived)
		e.handlePeerClose()
	}
	return nil
}

// dispatchWithoutFDs handles a message whose descriptors the kernel dropped, as this process
// has no free ones. Only MIGRATE may fail so: the machine rejects it.
func (e *ep) dispatchWithoutFDs(b []byte) error {
	h, err := parseConnMsg(b)
	if err != nil {
		return err
	}
	if h.kind != kindMigrate {
		return fmt.Errorf("descriptors of a message of kind %d: %w", h.kind, shmem.ErrDescriptors)
	}
	e.step(machine.Event{Kind: machine.EventAttachFailed, Msg: h.machineMsg()})
	return nil
}

// handlePeerClose handles the peer's CLOSE or SHUTDOWN. It closes this direction too if the
// peer initiated the connection and no endpoint is open on it.
func (e *ep) handlePeerClose() {
	if e.Facts&(conn.Initiated|conn.Opened) == 0 {
		e.step(machine.Event{Kind: machine.EventClose})
	}
	e.f.Schedule(e)
}

// attachPeer maps the peer's doorbell page, opens its wake pipe, and writes the doorbell for
// messages sent before. It owns both descriptors.
func (e *ep) attachPeer(h connMsg, pageFD, wakeFD int) error {
	if e.peerPage != nil {
		shmem.CloseFDs(pageFD, wakeFD)
		return nil
	}
	in, err := mapDoorbellPage(pageFD)
	if err != nil {
		shmem.CloseFDs(wakeFD)
		return err
	}
	ev, err := shmem.OpenWakeWriter(wakeFD)
	if err != nil {
		shmem.CloseFDs(wakeFD)
		return errors.Join(err, in.close())
	}
	e.peerPage, e.peerSlot, e.peerEvent = in, int(h.slot), ev
	e.needsBarrier = e.f.noBarrier || h.flags&flagFence != 0
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
