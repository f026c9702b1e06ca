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

// maxRead is the most messages taken from a socket at a time: a peer that talks
// without end does not keep others waiting.
const maxRead = 64

// read takes what the peer said on the socket; what is left is looked at again.
func (e *ep) read() {
	for range maxRead {
		if e.dead != nil || e.hungUp || e.sock == nil || !e.readOne(e.sock) {
			return
		}
	}
}

// readOne takes one message; false: there is none, or the connection is over.
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
		err = e.hearWithout(b[:n]) // for want of descriptors here
	case err == nil:
		err = e.hear(b[:n], fds)
	}
	if err != nil {
		e.f.failLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
	return err == nil
}

// hear acts on one message; it owns fds.
func (e *ep) hear(b []byte, fds []int) error {
	h, err := parseHello(b)
	switch {
	case err != nil:
	case h.kind == kindHello, h.kind == kindByeAll && e.heardAll, h.kind == kindBye && e.heardBye:
		err = fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	case h.kind == kindRefuse:
		e.f.stats.Inc(statRefused)
		err = fmt.Errorf("it refused the connection: %s", h.reason)
	case h.kind == kindByeAll && len(fds) == 0:
		e.heardBye, e.heardAll = true, true
	case h.kind == kindByeAll:
		err = fmt.Errorf("a farewell with %d descriptors: %w", len(fds), ucs.ErrInvalid)
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

// hearMachine acts on a message of the peer's machine.
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

// hearWithout acts on a message whose descriptors found no room in this process.
func (e *ep) hearWithout(b []byte) error {
	h, err := parseHello(b)
	if err != nil {
		return err
	}
	if h.kind != kindOffer {
		return fmt.Errorf("descriptors of a message of kind %d: %w", h.kind, shmem.ErrDescriptors)
	}
	e.step(machine.Event{Kind: machine.Unable, Msg: h.msg()})
	return nil
}

// heardFarewell ends this side's part too where nobody sends here and nobody will.
func (e *ep) heardFarewell() {
	if !e.initiated && !e.opened {
		e.step(machine.Event{Kind: machine.Close})
	}
	e.f.settleLater(e)
}

// meet learns where the peer's inbox is and says what was sent meanwhile.
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

// lost takes what the peer still said and notes that it is gone, however that
// was found out: its end may have been an orderly one.
func (e *ep) lost() {
	for e.sock != nil && e.dead == nil && !e.hungUp && e.readOne(e.sock) {
	}
	e.hangUp()
}

// hangUp notes that the peer's end is gone; service drains the rings first. What
// it said where it had said hello itself counts as well.
func (e *ep) hangUp() {
	if e.hungUp {
		return
	}
	if side := e.side; side != nil {
		e.side = nil
		for e.dead == nil && !e.hungUp && e.readOne(side) {
		}
		_ = side.Close() // it is over
	}
	e.hungUp = true
	e.f.settleLater(e)
}
