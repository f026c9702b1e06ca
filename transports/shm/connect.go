package shm

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

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
		return nil, errors.Join(err, f.remove(e))
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

	// A closing peer may drop a connection right after the dial. The next dial then returns the
	// definite error.
	for range 3 {
		if err = e.dial(); !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
			break
		}
	}
	switch {
	case err == nil:
	case errors.Is(err, shmem.ErrWouldBlock):
		f.undialed = append(f.undialed, e)
		f.requestService()
	case errors.Is(err, unix.ECONNREFUSED) && (f.dir != "" && isUnique(f.deviceAddr) || sameNamespace(f.deviceAddr, remoteAddr)):
		// The peer provably existed on this host: its socket file is there, or its address is of
		// this network namespace.
		err = fmt.Errorf("%w: no process has its socket, so its process is dead or its worker closed", ucs.ErrPeerFailed)
		fallthrough
	default:
		return nil, errors.Join(fmt.Errorf("connect to worker %x: %w: %w", peer, ucs.ErrUnreachable, err), f.remove(e))
	}
	f.stats.Inc(statConnected)
	return e, nil
}

// newEP makes a connection without a ring pair. Each ring pair that it gets must hold
// messages of maxBulk bytes.
func (f *iface) newEP(peer ifaceName, maxBulk int) (*ep, error) {
	e := &ep{f: f, peer: peer, armed: &alwaysArmed, pidfd: -1, resLen: -1, maxBulk: maxBulk, tx: f.nullPair.tx, rx: f.nullPair.rx}
	e.mail.tuner.hold = mailHold
	e.M = machine.New(machine.Config{Worker: f.worker, Conn: conn.NewID()})
	if err := f.assignSlot(e); err != nil {
		return nil, err
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
	fault.At(fault.Connect)
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

// newConnMsg returns a message of kind k with the fields that all messages have in common.
func (f *iface) newConnMsg(k msgKind, slot int) *connMsg {
	return &connMsg{kind: k, features: f.features, flags: f.fenceFlag, name: f.name, slot: uint16(slot % slotsPerPage)}
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
	if e.pid = cred.PID; e.pid == os.Getpid() {
		return nil
	}
	fd, err := e.sock.PeerPidfd()
	if errors.Is(err, ucs.ErrUnsupported) {
		e.pid = 0  // it could be reused unnoticed
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
		switch err := e.dial(); {
		case err == nil:
		case errors.Is(err, shmem.ErrWouldBlock):
			return
		case e.crossedSock != nil:
			// The peer has connected itself. Its messages and its CLOSE may still be unread, so
			// the connection ends in the normal way.
			e.markPeerGone()
			return
		default:
			e.f.FailLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
			return
		}
	}
	if e.peerPage == nil {
		e.readSocket()
	}
}

// assignSlot assigns a slot to the connection: its doorbell word and its source number.
func (f *iface) assignSlot(e *ep) error {
	slot := f.NextSlot()
	if slot >= maxConns {
		return fmt.Errorf("%d connections of one worker: %w", slot, ucs.ErrNoResource)
	}
	if slot == len(f.pages)*slotsPerPage {
		if err := f.addPage(); err != nil {
			return err
		}
	}
	f.Insert(e, e.peer)
	// A doorbell equal to the previous owner's last one would not be noticed.
	p := f.pageOf(slot)
	p.lastSeen[slot%slotsPerPage] = 0
	atomic.StoreUint64(&p.doorbells[slot%slotsPerPage], 0)
	f.selectDoorbells()
	return nil
}

// addPage adds a doorbell page to the iface.
func (f *iface) addPage() error {
	seg, err := shmem.Create("goucx-inbox", pageSize)
	if err != nil {
		return fmt.Errorf("doorbell page: %w", err)
	}
	f.pages = append(f.pages, ownPage{newDoorbellPage(seg), make([]uint64, slotsPerPage)})
	f.requestService() // an armed worker has not armed this page
	return nil
}

// pageOf returns the doorbell page that holds slot.
func (f *iface) pageOf(slot int) ownPage { return f.pages[slot/slotsPerPage] }

// remove removes the connection from all lists that passes poll, frees its slot, and releases it.
func (f *iface) remove(e *ep) error {
	f.demote(e)
	f.Remove(e, e.peer)
	f.selectDoorbells()
	return e.release()
}

// countUnsent returns the number of connections with messages or a CLOSE whose OPEN is not sent yet.
func (f *iface) countUnsent() (n int) {
	for _, e := range f.undialed {
		if e.undialed() && (e.M.Closing() || e.tx.Head() > 1) {
			n++
		}
	}
	return n
}
