package shm

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
)

// takeable reports whether an endpoint may be opened on the connection.
func (e *ep) takeable() bool {
	return !e.initiated && !e.opened && !e.saidBye && !e.heardBye && !e.hungUp && e.dead == nil
}

// connect makes a connection to peer; it can be written to at once.
func (f *iface) connect(peer ifaceName) (*ep, error) {
	e, err := f.newEP(peer, f.layout, nil)
	if err != nil {
		return nil, err
	}
	e.initiated = true
	if err := e.dial(); errors.Is(err, shmem.ErrWouldBlock) {
		f.undialed = append(f.undialed, e)
		f.look()
	} else if err != nil {
		f.forget(e)
		return nil, errors.Join(fmt.Errorf("connect to worker %x: %w: %w", peer, ucs.ErrUnreachable, err), e.release())
	}
	f.stats.Inc(statConnected)
	f.heat(e)
	return e, nil
}

// newEP makes a connection over seg, or over a new segment.
func (f *iface) newEP(peer ifaceName, l ring.Layout, seg *shmem.Segment) (*ep, error) {
	e := &ep{f: f, peer: peer, armed: &alwaysArmed, pidfd: -1, resLen: -1, maxBulk: l.MaxBulk(), cells: l.Cells, seg: seg}
	if err := e.attach(l); err != nil {
		return nil, errors.Join(err, e.release())
	}
	if err := f.takeSlot(e); err != nil {
		return nil, errors.Join(err, e.release())
	}
	e.RMA.Init(f.d.keys)
	return e, nil
}

// pairSize is the size of a pair's segment: a ring of each direction.
func pairSize(l ring.Layout) int { return 2 * ringStride(l) }

// ringStride is the distance of the two rings: whole lines.
func ringStride(l ring.Layout) int {
	return (l.Size() + ucs.CacheLine - 1) / ucs.CacheLine * ucs.CacheLine
}

// attach binds both rings. The initiator, which brings no segment, makes one
// and sends on the first ring; the acceptor sends on the second.
func (e *ep) attach(l ring.Layout) (err error) {
	n := ringStride(l)
	out, in := 0, n
	if e.seg == nil {
		if e.seg, err = shmem.Create("goucx-pair", pairSize(l)); err != nil {
			return err
		}
		if err = e.seg.Populate(); err != nil {
			return err
		}
		err = errors.Join(ring.Init(e.seg.Bytes()[:n], l), ring.Init(e.seg.Bytes()[n:], l))
		if err != nil {
			return err
		}
	} else {
		out, in = n, 0
	}
	m := e.seg.Bytes()
	if e.tx, err = ring.NewProducer(m[out:out+n], l); err != nil {
		return err
	}
	e.rx, err = ring.NewConsumer(m[in:in+n], l)
	return err
}

// dial connects the socket and sends the hello. ErrWouldBlock: the peer's
// backlog is full, or too many descriptors are on their way; try again later.
func (e *ep) dial() error {
	f := e.f
	sock, err := shmem.Dial(f.socketName(e.peer))
	if err != nil {
		return err
	}
	h := f.hello(kindHello, e.slot)
	h.cells, h.bulk = uint32(f.layout.Cells), uint32(f.layout.Bulk)
	if fault.Enabled {
		fault.At(fault.Connect)
	}
	if err := sock.Send(h.append(nil), e.seg.FD(), f.pageOf(e.slot).seg.FD(), f.event.FD()); err != nil {
		if errors.Is(err, unix.ETOOMANYREFS) {
			err = shmem.ErrWouldBlock
		}
		return errors.Join(fmt.Errorf("greet: %w", err), sock.Close())
	}
	e.sock = sock
	if e.saidBye { // closed before it could be dialled
		e.tell(kindBye)
	}
	if err := e.seg.CloseFD(); err != nil {
		return err
	}
	return e.watch()
}

// dialAll takes up the handshakes that stand still.
func (f *iface) dialAll() {
	es := f.undialed
	f.undialed = nil
	for _, e := range es {
		if e.dead == nil && e.sock == nil && !e.released {
			e.greet()
		}
		if e.dead == nil && e.sock == nil && !e.released {
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
			if !errors.Is(err, shmem.ErrWouldBlock) {
				e.f.failLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
			}
			return
		}
	}
	if e.peerInbox == nil {
		e.read()
	}
}

// read takes what the peer said on the socket.
func (e *ep) read() {
	var b [maxHello]byte
	for e.dead == nil && !e.hungUp {
		n, fds, err := e.sock.Recv(b[:])
		if errors.Is(err, shmem.ErrWouldBlock) {
			return
		}
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			e.hangUp()
			return
		}
		if err == nil {
			err = e.hear(b[:n], fds)
		}
		if err != nil {
			e.f.failLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
		}
	}
}

// hear acts on one message; it owns fds.
func (e *ep) hear(b []byte, fds []int) error {
	h, err := parseHello(b)
	if err == nil && h.kind == kindAccept && e.initiated && e.peerInbox == nil && len(fds) == 2 {
		return e.meet(h, fds[0], fds[1])
	}
	shmem.CloseFDs(fds...)
	switch {
	case err != nil:
		return err
	case h.kind == kindBye && !e.heardBye:
		e.heardBye = true
	case h.kind == kindByeAll && !e.heardAll:
		e.heardBye, e.heardAll = true, true
	case h.kind == kindRefuse:
		e.f.stats.Inc(statRefused)
		return fmt.Errorf("it refused the connection: %s", h.reason)
	default:
		return fmt.Errorf("message of kind %d with %d descriptors does not fit here: %w", h.kind, len(fds), ucs.ErrInvalid)
	}
	if e.heardBye && !e.initiated && !e.opened {
		e.saidBye = true // nobody sent on it and nobody will
	}
	e.f.settleLater(e)
	return nil
}

// meet learns where the peer's inbox is and says what was sent meanwhile.
func (e *ep) meet(h hello, pageFD, eventFD int) error {
	in, err := mapInbox(pageFD)
	if err != nil {
		shmem.CloseFDs(eventFD)
		return err
	}
	ev, err := shmem.WrapEventFD(eventFD)
	if err != nil {
		shmem.CloseFDs(eventFD)
		return errors.Join(err, in.close())
	}
	e.peerInbox, e.peerSlot, e.peerEvent = in, int(h.slot), ev
	e.fenced = e.f.noBarrier || h.flags&flagFence != 0
	e.rx.Fence(e.fenced)
	if !e.fenced {
		e.armed = in.armed
	}
	e.notify()
	return nil
}

// lost takes what the peer still said and notes that it is gone, however that
// was found out: its end may have been an orderly one.
func (e *ep) lost() {
	e.read()
	e.hangUp()
}

// hangUp notes that the peer's end is gone; service drains the ring first.
func (e *ep) hangUp() {
	if e.hungUp {
		return
	}
	e.hungUp = true
	e.f.settleLater(e)
}
