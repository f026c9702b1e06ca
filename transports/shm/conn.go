package shm

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// takeable reports whether an endpoint may be opened on the connection.
func (e *ep) takeable() bool {
	return !e.initiated && !e.separate && !e.opened && !e.m.SaidBye() && !e.heardBye && !e.hungUp && e.dead == nil
}

// connect makes a connection to peer, whose device address is there; it can be
// written to at once.
func (f *iface) connect(peer ifaceName, there []byte) (*ep, error) {
	e, err := f.newEP(peer, f.layout.MaxBulk())
	if err != nil {
		return nil, err
	}
	if e.spare, err = makePair(f.layout); err != nil {
		f.forget(e)
		return nil, errors.Join(err, e.release())
	}
	e.initiated = true
	e.separate = peer == f.name || f.openings[peer] != nil || f.closing(peer)
	if !e.separate {
		f.openings[peer] = e
	}
	for _, o := range slices.Backward(f.undialed) {
		if o.peer == peer {
			e.behind = o
			break
		}
	}
	e.step(machine.Event{Kind: machine.Connect})
	if err := e.firstDial(); errors.Is(err, shmem.ErrWouldBlock) {
		f.undialed = append(f.undialed, e)
		f.look()
	} else if err != nil {
		f.forget(e)
		return nil, errors.Join(fmt.Errorf("connect to worker %x: %w", peer, f.whyNot(there, err)), e.release())
	}
	f.stats.Inc(statConnected)
	return e, nil
}

// firstDial is dial towards who may be dying: then it hangs up on the first, and
// refuses the next.
func (e *ep) firstDial() (err error) {
	for range 3 {
		if err = e.dial(); !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			break
		}
	}
	return err
}

// whyNot is the error of a first dial to a peer there that the system answered with
// err. A refusal says that the peer is gone for certain where it is proven that it was
// here: by its socket's file, or by its address.
func (f *iface) whyNot(there []byte, err error) error {
	if errors.Is(err, unix.ECONNREFUSED) && (f.dir != "" && certain(f.device) || certainlyHere(f.device, there)) {
		return fmt.Errorf("%w: %w: nobody has its socket, so its process is dead or its worker closed", ucs.ErrUnreachable, ucs.ErrPeerFailed)
	}
	return fmt.Errorf("%w: %w", ucs.ErrUnreachable, err)
}

// newEP makes a connection that has no pair yet. maxBulk is the longest message
// that every pair of it must take.
func (f *iface) newEP(peer ifaceName, maxBulk int) (*ep, error) {
	e := &ep{f: f, peer: peer, armed: &alwaysArmed, pidfd: -1, resLen: -1, maxBulk: maxBulk, tx: f.nowhere.tx, rx: f.nowhere.rx}
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	e.m = machine.New(machine.Config{Worker: f.worker, Conn: binary.LittleEndian.Uint64(b[:]) | 1})
	if err := f.takeSlot(e); err != nil {
		return nil, errors.Join(err, e.release())
	}
	e.RMA.Init(f.d.keys)
	return e, nil
}

// dial connects the socket and sends the hello. ErrWouldBlock: the peer's
// backlog is full, an older connection to the peer is not dialled yet, or too many
// descriptors are on their way; try again later.
func (e *ep) dial() error {
	f := e.f
	if e.behind != nil && e.behind.undialed() {
		return shmem.ErrWouldBlock
	}
	e.behind = nil
	sock, err := shmem.Dial(f.socketName(e.peer))
	if err != nil {
		return err
	}
	h, p := f.hello(kindHello, e.slot), e.pairs[0]
	h.carry(machine.Msg{Pair: p.id, Worker: f.worker, From: e.m.Conn()})
	h.shape(p.layout)
	if e.separate {
		h.flags |= flagSeparate
	}
	if fault.Enabled {
		fault.At(fault.Connect)
	}
	if err := sock.Send(h.append(nil), p.seg.FD(), f.pageOf(e.slot).seg.FD(), f.event.Share()); err != nil {
		if errors.Is(err, unix.ETOOMANYREFS) {
			err = shmem.ErrWouldBlock
		}
		return errors.Join(fmt.Errorf("greet: %w", err), sock.Close())
	}
	e.sock = sock
	if e.m.SaidBye() { // closed before it could be dialled
		e.post(machine.Msg{Kind: machine.Bye, Pair: p.id, Worker: f.worker, From: e.m.Conn()})
	}
	return e.watch()
}

// undialed reports whether the hello is still to be sent.
func (e *ep) undialed() bool { return e.dead == nil && e.sock == nil && !e.released }

// dialAll takes up the handshakes that stand still.
func (f *iface) dialAll() {
	es := f.undialed
	f.undialed = nil
	for _, e := range es {
		if e.undialed() {
			e.greet()
		}
		if e.undialed() {
			f.undialed = append(f.undialed, e)
		}
	}
}

func (f *iface) hello(k kind, slot int) *hello {
	h := &hello{kind: k, name: f.name, slot: uint16(slot % inboxSlots)}
	if f.noBarrier {
		h.flags = flagFence
	}
	return h
}

// watch has the socket and the peer's process looked at by service.
func (e *ep) watch() error {
	f := e.f
	if err := f.epoll.Add(e.sock.FD(), evSocket|uint64(e.slot), shmem.EventIn|shmem.EventRDHup); err != nil {
		return err
	}
	if e.pidfd >= 0 {
		return nil
	}
	cred, err := e.sock.Peer()
	if err != nil {
		return err
	}
	if cred.UID != uint32(os.Geteuid()) {
		return fmt.Errorf("peer belongs to user %d, not %d: %w", cred.UID, os.Geteuid(), unix.EACCES)
	}
	if cred.PID == os.Getpid() {
		return nil
	}
	fd, err := e.sock.PeerPidfd()
	if errors.Is(err, ucs.ErrUnsupported) {
		return nil // the socket's hang-up tells too
	}
	if errors.Is(err, unix.ESRCH) {
		e.lost()
		return nil
	}
	if err != nil {
		return err
	}
	e.pidfd = fd
	return f.epoll.Add(fd, evProcess|uint64(e.slot), shmem.EventIn)
}

// greet brings the handshake on: the hello if it is still due, then the peer's
// answer if it is there. Called from sends too, so it calls nobody back.
func (e *ep) greet() {
	if e.dead != nil || e.hungUp || !e.initiated {
		return
	}
	if e.sock == nil {
		if err := e.dial(); err != nil {
			e.undialable(err)
			return
		}
	}
	if e.peerInbox == nil {
		e.read()
	}
}

// undialable deals with a hello that could not be sent. A peer that said hello
// itself may have left messages and its farewell behind.
func (e *ep) undialable(err error) {
	switch {
	case errors.Is(err, shmem.ErrWouldBlock):
	case e.side != nil:
		e.hangUp()
	default:
		e.f.failLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
}
