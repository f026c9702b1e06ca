package shm

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// connect makes a connection to peer, which has device address remoteAddr. The caller may
// send on it at once.
//
// The initiator makes a ring pair, dials the peer's socket and sends OPEN with the ring
// pair. It does not wait for ACCEPT: messages already go into the ring. The acceptor
// polls the ring after it has sent ACCEPT. Until the initiator has read ACCEPT, it does not
// know the peer's doorbell page. Each of its sends then calls notify, which reads the
// socket (alwaysArmed).
func (f *iface) connect(peer ifaceName, remoteAddr []byte) (*ep, error) {
	e, err := f.newEP(peer, f.layout.MaxBulk())
	if err != nil {
		return nil, err
	}
	if e.newPair, err = makePair(f.layout); err != nil {
		f.unregister(e)
		return nil, errors.Join(err, e.release())
	}
	e.Add(conn.Initiated)
	if peer == f.name || f.connecting[peer] != nil || f.hasClosing(peer) {
		e.Add(conn.Separate)
	} else {
		f.connecting[peer] = e
	}
	for _, o := range slices.Backward(f.undialed) {
		if o.peer == peer {
			e.dialAfter = o
			break
		}
	}
	e.step(machine.Event{Kind: machine.EventConnect})
	if err := e.dialRetry(); errors.Is(err, shmem.ErrWouldBlock) {
		f.undialed = append(f.undialed, e)
		f.requestService()
	} else if err != nil {
		f.unregister(e)
		return nil, errors.Join(fmt.Errorf("connect to worker %x: %w", peer, f.connectError(remoteAddr, err)), e.release())
	}
	f.stats.Inc(statConnected)
	return e, nil
}

// dialRetry dials up to three times. A closing peer may drop a connection right after the
// dial. The next dial then returns the definite error.
func (e *ep) dialRetry() (err error) {
	for range 3 {
		if err = e.dial(); !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			break
		}
	}
	return err
}

// connectError returns the error of a first dial to a peer with device address there; err is
// the system's error. A refused connect wraps ErrPeerFailed only if the peer provably
// existed on this host: its socket file is there, or its address is of this network
// namespace.
func (f *iface) connectError(remoteAddr []byte, err error) error {
	if errors.Is(err, unix.ECONNREFUSED) && (f.dir != "" && isUnique(f.deviceAddr) || sameNamespace(f.deviceAddr, remoteAddr)) {
		return fmt.Errorf("%w: %w: no process has its socket, so its process is dead or its worker closed", ucs.ErrUnreachable, ucs.ErrPeerFailed)
	}
	return fmt.Errorf("%w: %w", ucs.ErrUnreachable, err)
}

// newEP makes a connection without a ring pair. Each ring pair that it gets must hold
// messages of maxBulk bytes.
func (f *iface) newEP(peer ifaceName, maxBulk int) (*ep, error) {
	e := &ep{f: f, peer: peer, armed: &alwaysArmed, pidfd: -1, resLen: -1, maxBulk: maxBulk, tx: f.nullRings.tx, rx: f.nullRings.rx}
	e.M = machine.New(machine.Config{Worker: f.worker, Conn: conn.NewID()})
	if err := f.assignSlot(e); err != nil {
		return nil, errors.Join(err, e.release())
	}
	e.RMA.Init(f.d.keys)
	return e, nil
}

// dial connects the socket and sends OPEN.
//
// Errors: ErrWouldBlock, dial again later: the peer's backlog is full, OPEN of an older
// connection to the peer is not sent yet, or too many descriptors are in flight.
func (e *ep) dial() error {
	f := e.f
	if e.dialAfter != nil && e.dialAfter.undialed() {
		return shmem.ErrWouldBlock
	}
	e.dialAfter = nil
	sock, err := shmem.Dial(f.socketName(e.peer))
	if err != nil {
		return err
	}
	h, p := f.newConnMsg(kindOpen, e.Slot()), e.pairs[0]
	h.setMachineMsg(machine.Msg{Pair: p.id, Worker: f.worker, From: e.M.Conn()})
	h.setLayout(p.layout)
	if e.Has(conn.Separate) {
		h.flags |= flagSeparate
	}
	if fault.Enabled {
		fault.At(fault.Connect)
	}
	if err := sock.Send(h.append(nil), p.seg.FD(), f.pageOf(e.Slot()).seg.FD(), f.event.Share()); err != nil {
		if errors.Is(err, unix.ETOOMANYREFS) {
			err = shmem.ErrWouldBlock
		}
		return errors.Join(fmt.Errorf("send OPEN: %w", err), sock.Close())
	}
	e.sock = sock
	if e.M.Closing() { // closed before OPEN was sent
		e.sendMsg(machine.Msg{Kind: machine.MsgClose, Pair: p.id, Worker: f.worker, From: e.M.Conn()})
	}
	return e.watch()
}

// undialed reports whether OPEN is still to be sent.
func (e *ep) undialed() bool { return e.sock == nil && !e.Life.Over() }

// dialAll dials the connections whose OPEN is not sent yet.
func (f *iface) dialAll() {
	es := f.undialed
	f.undialed = nil
	for _, e := range es {
		if e.undialed() {
			e.continueHandshake()
		}
		if e.undialed() {
			f.undialed = append(f.undialed, e)
		}
	}
}

// connMsg returns a message of kind k with the fields that all messages have in common.
func (f *iface) newConnMsg(k msgKind, slot int) *connMsg {
	h := &connMsg{kind: k, name: f.name, slot: uint16(slot % slotsPerPage)}
	if f.noBarrier {
		h.flags = flagFence
	}
	return h
}

// watch adds the socket to the epoll set and, at the first call, the peer's process. It
// returns an error if the peer belongs to another user.
func (e *ep) watch() error {
	f := e.f
	if err := f.epoll.Add(e.sock.FD(), evSocket|uint64(e.Slot()), shmem.EventIn|shmem.EventRDHup); err != nil {
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
		return nil // the socket reports the peer's end too
	}
	if errors.Is(err, unix.ESRCH) {
		e.peerLost()
		return nil
	}
	if err != nil {
		return err
	}
	e.pidfd = fd
	return f.epoll.Add(fd, evProcess|uint64(e.Slot()), shmem.EventIn)
}

// continueHandshake advances the connect handshake: it sends OPEN if that is pending, and reads
// ACCEPT if it has arrived. Sends call it, so it invokes no callback.
func (e *ep) continueHandshake() {
	if e.Life != conn.Open || !e.Has(conn.Initiated) {
		return
	}
	if e.sock == nil {
		if err := e.dial(); err != nil {
			e.dialFailed(err)
			return
		}
	}
	if e.peerPage == nil {
		e.readSocket()
	}
}

// dialFailed handles a failed dial. If the peer has connected itself, its messages
// and its CLOSE may still be unread, so the connection ends in the normal way.
func (e *ep) dialFailed(err error) {
	switch {
	case errors.Is(err, shmem.ErrWouldBlock):
	case e.crossedSock != nil:
		e.markPeerGone()
	default:
		e.f.FailLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
}
