package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// embryo is a half-open connection: its OPEN has not been received yet.
type embryo struct {
	sock  *shmem.Conn
	since ucs.Time
	pid   int // process id of the peer
}

const (
	// embryoLife is the time a half-open connection has for its OPEN.
	embryoLife = 5 * time.Second
	maxEmbryos = 1024
)

// accept accepts a bounded number of new connections. A correct peer sends OPEN at
// once. If there are too many half-open connections, or no descriptors are left, accept
// closes the oldest half-open connection.
func (f *iface) accept() {
	for range 16 {
		if len(f.embryos) >= maxEmbryos {
			f.dropOldestEmbryo()
		}
		sock, err := f.listener.Accept()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			if len(f.embryos) > 0 {
				f.dropOldestEmbryo()
				continue
			}
			f.pauseAccept()
			return
		}
		if err != nil {
			return // none, or one that the peer closed already
		}
		cred, err := sock.Peer()
		if err != nil || cred.UID != uint32(os.Geteuid()) {
			f.stats.Inc(statRefused)
			f.d.logf("refused a connection of another user", err)
			_ = sock.Close()
			continue
		}
		f.embryoID++
		f.embryos[f.embryoID] = embryo{sock, ucs.Now(), cred.PID}
		if err := f.epoll.Add(sock.FD(), evEmbryo|uint64(f.embryoID), shmem.EventIn); err != nil {
			f.dropEmbryo(f.embryoID)
			continue
		}
		f.welcome(f.embryoID)
	}
}

// welcome reads OPEN from half-open connection id, if it has arrived, and handles it.
func (f *iface) welcome(id uint32) {
	m, ok := f.embryos[id]
	if !ok {
		return
	}
	var b [maxHello]byte
	n, fds, err := m.sock.Recv(b[:])
	if errors.Is(err, shmem.ErrWouldBlock) {
		return
	}
	if errors.Is(err, io.EOF) {
		f.dropEmbryo(id)
		return
	}
	delete(f.embryos, id)
	_ = f.epoll.Del(m.sock.FD())
	if err == nil {
		err = f.adopt(id, m, b[:n], fds)
	}
	if err != nil {
		f.refuse(m.sock, err)
	}
}

// welcomeOlder reads OPEN from all half-open connections of process pid that are older
// than id. The process sends OPEN on one connection before it connects the next, so
// these messages have arrived.
func (f *iface) welcomeOlder(id uint32, pid int) {
	var older []uint32
	for o, m := range f.embryos {
		if o < id && m.pid == pid {
			older = append(older, o)
		}
	}
	slices.Sort(older)
	for _, o := range older {
		f.welcome(o)
	}
}

// refuse sends REJECT with a reason and closes the socket.
func (f *iface) refuse(sock *shmem.Conn, why error) {
	f.stats.Inc(statRefused)
	f.d.logf("refused a connection", why)
	r := f.hello(kindRefuse, 0)
	r.reason = why.Error()
	_ = sock.Send(r.append(nil)) // the peer may be gone
	_ = sock.Close()
}

func (f *iface) dropEmbryo(id uint32) {
	m := f.embryos[id]
	delete(f.embryos, id)
	_ = f.epoll.Del(m.sock.FD())
	_ = m.sock.Close()
}

// dropOldestEmbryo closes the oldest half-open connection. There must be one.
func (f *iface) dropOldestEmbryo() {
	for {
		f.embryoOldest++
		if _, ok := f.embryos[f.embryoOldest]; ok {
			f.dropEmbryo(f.embryoOldest)
			return
		}
	}
}

// reapEmbryos closes half-open connections without OPEN after embryoLife.
func (f *iface) reapEmbryos(now ucs.Time) {
	for id, m := range f.embryos {
		if now.Sub(m.since) > embryoLife {
			f.dropEmbryo(id)
		}
	}
}

// adopt handles b, the OPEN of half-open connection m with number id. It makes a
// connection and sends ACCEPT, or merges it with a crossed connect of this side.
//
// Ownership: adopt owns fds. On an error the caller closes the socket.
func (f *iface) adopt(id uint32, m embryo, b []byte, fds []int) error {
	sock := m.sock
	h, err := parseHello(b)
	if err == nil && (h.kind != kindHello || len(fds) != 3) {
		err = fmt.Errorf("message of kind %d with %d descriptors is not an OPEN: %w", h.kind, len(fds), ucs.ErrInvalid)
	}
	if err == nil && (!h.pair.IsLocal() || h.conn == 0) {
		err = fmt.Errorf("OPEN with ring pair %d of connection %d: %w", h.pair, h.conn, ucs.ErrInvalid)
	}
	if err == nil {
		err = h.layout().Check()
	}
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	f.welcomeOlder(id, m.pid)
	for _, o := range f.peers[h.name] {
		if o.m.State() == machine.StateOpening {
			o.read() // the peer may have sent ACCEPT on it before this OPEN
		}
	}
	e := f.crossing(&h)
	if _, ok := f.merged[h.conn]; ok { // its ring pair came with an ACCEPT
		delete(f.merged, h.conn)
		shmem.CloseFDs(fds...)
		return sock.Close()
	}
	p, err := mapPair(h.pair.Flip(), fds[0], h.layout())
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	if e != nil {
		return f.cross(e, sock, h, p, fds)
	}
	if e, err = f.newEP(h.name, p.layout.MaxBulk()); err != nil {
		shmem.CloseFDs(fds[1:]...)
		return errors.Join(err, p.seg.Close())
	}
	e.separate = f.closing(h.name)
	e.hold(p)
	e.sock = sock
	if err = e.meet(h, fds[1], fds[2]); err == nil {
		err = e.watch()
	}
	if err != nil {
		_ = f.epoll.Del(sock.FD())
		e.sock = nil
		f.forget(e)
		return errors.Join(err, e.release())
	}
	f.count(e)
	f.stats.Inc(statAccepted)
	e.step(machine.Event{Kind: machine.EventReceive, Msg: h.msg()})
	return nil
}

// count counts e among the connections that the peer may send on.
func (f *iface) count(e *ep) {
	if !e.counted {
		e.counted = true
		f.accepted++
	}
}

// crossing returns this side's pending connect to the sender of OPEN message h, or nil.
// Both sides then connect at the same time. There is no crossing once this side has read
// the peer's ACCEPT.
func (f *iface) crossing(h *hello) *ep {
	e := f.openings[h.name]
	if e == nil || h.flags&flagSeparate != 0 {
		return nil
	}
	if e.dead != nil || e.hungUp || e.side != nil {
		return nil
	}
	mine, theirs := e.maxBulk, h.layout().MaxBulk()
	if e.m.WinsCrossing(h.worker, h.conn) {
		mine, theirs = theirs, mine
	}
	if theirs < mine {
		return nil // the kept ring pair would be too small for the other side's longest message
	}
	return e
}

// cross merges the peer's connect, with ring pair p, into e, this side's connect. Both
// sides have sent OPEN with a ring pair of their own, and both may have sent messages in
// it. One of the two connects is kept: that of the smaller worker UUID (Stands).
//
// If this side's connect is kept, the machine replies OPEN_CROSSED on the peer's socket,
// which stays in e.side until ACCEPT. Otherwise the machine sends ACCEPT on the peer's
// socket, and this side closes its own. The side that yields puts a switch-over marker into
// its own ring pair. Its peer reads that ring up to the marker, then the kept one. So no
// message is lost or reordered.
//
// Ownership: cross owns fds; fds[0] belongs to p already.
func (f *iface) cross(e *ep, sock *shmem.Conn, h hello, p *pair, fds []int) error {
	if err := e.meet(h, fds[1], fds[2]); err != nil {
		return errors.Join(err, p.seg.Close())
	}
	e.hold(p)
	f.count(e)
	f.stats.Inc(statCrossed)
	if e.m.WinsCrossing(h.worker, h.conn) {
		e.side = sock
		e.step(machine.Event{Kind: machine.EventReceive, Msg: h.msg()})
		return nil
	}
	delete(f.openings, e.peer)
	e.maxBulk = p.layout.MaxBulk()
	old := e.sock
	e.sock = sock
	if old != nil {
		_ = f.epoll.Del(old.FD())
	}
	e.step(machine.Event{Kind: machine.EventReceive, Msg: h.msg()})
	if old != nil {
		if err := old.Close(); err != nil {
			f.d.logf("close a socket", err)
		}
	}
	if err := e.watch(); err != nil {
		f.failLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
	return nil
}
