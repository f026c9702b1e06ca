package shm

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// maxRead is the maximum number of messages read from a socket at a time. A peer that
// floods its socket thus does not delay others.
const maxRead = 64

// read handles the messages on the socket, at most maxRead. The socket stays readable
// if messages are left.
func (e *ep) read() {
	for range maxRead {
		if e.dead != nil || e.hungUp || e.sock == nil || !e.readOne(e.sock) {
			return
		}
	}
}

// readOne handles one message. It returns false if there is none or the connection is
// over.
func (e *ep) readOne(sock *shmem.Conn) bool {
	var b [maxHello]byte
	n, fds, err := sock.Recv(b[:])
	switch {
	case errors.Is(err, shmem.ErrWouldBlock):
		return false
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		e.hangUp()
		return false
	case errors.Is(err, shmem.ErrDescriptors) && n == helloLen:
		err = e.hearWithout(b[:n]) // this process is out of descriptors
	case err == nil:
		err = e.hear(b[:n], fds)
	}
	if err != nil {
		e.f.failLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
	return err == nil
}

// hear handles one message. It owns fds.
func (e *ep) hear(b []byte, fds []int) error {
	h, err := parseHello(b)
	switch {
	case err != nil:
	case h.kind == kindHello, h.kind == kindByeAll && e.heardAll, h.kind == kindBye && e.heardBye:
		err = fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	case h.kind == kindRefuse:
		e.f.stats.Inc(statRefused)
		err = fmt.Errorf("it rejected the connection: %s", h.reason)
	case h.kind == kindByeAll && len(fds) == 0:
		e.heardBye, e.heardAll = true, true
	case h.kind == kindByeAll:
		err = fmt.Errorf("SHUTDOWN with %d descriptors: %w", len(fds), ucs.ErrInvalid)
	default:
		return e.hearMachine(h, fds)
	}
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	e.heardFarewell()
	return nil
}

// hearMachine handles a message of the peer's machine. It owns fds.
func (e *ep) hearMachine(h hello, fds []int) error {
	if err := e.listen(h, fds); err != nil {
		return err
	}
	if h.kind == kindBye {
		e.heardBye = true
		e.heardFarewell()
	}
	return nil
}

// hearWithout handles a message whose descriptors the kernel dropped, as this process
// has no free ones. Only MIGRATE may fail so: the machine rejects it.
func (e *ep) hearWithout(b []byte) error {
	h, err := parseHello(b)
	if err != nil {
		return err
	}
	if h.kind != kindOffer {
		return fmt.Errorf("descriptors of a message of kind %d: %w", h.kind, shmem.ErrDescriptors)
	}
	e.step(machine.Event{Kind: machine.EventAttachFailed, Msg: h.msg()})
	return nil
}

// heardFarewell handles the peer's CLOSE or SHUTDOWN. It closes this direction too if the
// peer initiated the connection and no endpoint is open on it.
func (e *ep) heardFarewell() {
	if !e.initiated && !e.opened {
		e.step(machine.Event{Kind: machine.EventClose})
	}
	e.f.settleLater(e)
}

// meet maps the peer's doorbell page, opens its wake pipe, and writes the doorbell for
// messages sent before. It owns both descriptors.
func (e *ep) meet(h hello, pageFD, wakeFD int) error {
	if e.peerInbox != nil {
		shmem.CloseFDs(pageFD, wakeFD)
		return nil
	}
	in, err := mapInbox(pageFD)
	if err != nil {
		shmem.CloseFDs(wakeFD)
		return err
	}
	ev, err := shmem.OpenWakeWriter(wakeFD)
	if err != nil {
		shmem.CloseFDs(wakeFD)
		return errors.Join(err, in.close())
	}
	e.peerInbox, e.peerSlot, e.peerEvent = in, int(h.slot), ev
	e.fenced = e.f.noBarrier || h.flags&flagFence != 0
	e.rx.Fence(e.fenced)
	if !e.fenced {
		e.armed = in.armed
	}
	e.hint()
	return nil
}

// lost handles the end of the peer, however it was detected. It first reads the
// messages left on the socket: the end may have been orderly.
func (e *ep) lost() {
	for e.sock != nil && e.dead == nil && !e.hungUp && e.readOne(e.sock) {
	}
	e.hangUp()
}

// hangUp marks the peer as gone; service drains the rings before it ends the
// connection. It reads the messages left on the socket of a crossed connect, too.
func (e *ep) hangUp() {
	if e.hungUp {
		return
	}
	if side := e.side; side != nil {
		e.side = nil
		for e.dead == nil && !e.hungUp && e.readOne(side) {
		}
		_ = side.Close() // the connection is over
	}
	e.hungUp = true
	e.f.settleLater(e)
}
