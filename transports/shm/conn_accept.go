package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/wireup/machine"
)

// halfOpenConn is a half-open connection: its OPEN has not been received yet.
type halfOpenConn struct {
	sock  *shmem.Conn
	since ucs.Time
	pid   int // process id of the peer
}

const (
	// openTimeout is the time a half-open connection has for its OPEN.
	openTimeout = 5 * time.Second
	maxHalfOpen = 1024
)

// accept accepts a bounded number of new connections. A correct peer sends OPEN at
// once. If there are too many half-open connections, or no descriptors are left, accept
// closes the oldest half-open connection.
func (f *iface) accept() {
	for range 16 {
		if len(f.halfOpen) >= maxHalfOpen {
			f.dropOldestHalfOpen()
		}
		sock, err := f.listener.Accept()
		if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) {
			if len(f.halfOpen) > 0 {
				f.dropOldestHalfOpen()
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
		f.halfOpenID++
		f.halfOpen[f.halfOpenID] = halfOpenConn{sock, ucs.Now(), cred.PID}
		if err := f.epoll.Add(sock.FD(), evHalfOpen|uint64(f.halfOpenID), shmem.EventIn); err != nil {
			f.dropHalfOpen(f.halfOpenID)
			continue
		}
		f.receiveOpen(f.halfOpenID)
	}
}

// receiveOpen reads OPEN from half-open connection id, if it has arrived, and handles it.
func (f *iface) receiveOpen(id uint32) {
	c, ok := f.halfOpen[id]
	if !ok {
		return
	}
	var b [maxConnMsg]byte
	n, fds, err := c.sock.Recv(b[:])
	if errors.Is(err, shmem.ErrWouldBlock) {
		return
	}
	if errors.Is(err, io.EOF) {
		f.dropHalfOpen(id)
		return
	}
	delete(f.halfOpen, id)
	_ = f.epoll.Del(c.sock.FD())
	if err == nil {
		err = f.acceptOpen(id, c, b[:n], fds)
	}
	if err != nil {
		f.reject(c.sock, err)
	}
}

// receiveOlderOpens reads OPEN from all half-open connections of process pid that are older
// than id. The process sends OPEN on one connection before it connects the next, so
// these messages have arrived.
func (f *iface) receiveOlderOpens(id uint32, pid int) {
	var older []uint32
	for o, c := range f.halfOpen {
		if o < id && c.pid == pid {
			older = append(older, o)
		}
	}
	slices.Sort(older)
	for _, o := range older {
		f.receiveOpen(o)
	}
}

// reject sends REJECT with a reason and closes the socket.
func (f *iface) reject(sock *shmem.Conn, reason error) {
	f.stats.Inc(statRefused)
	f.d.logf("refused a connection", reason)
	r := f.newConnMsg(kindReject, 0)
	r.reason = reason.Error()
	_ = sock.Send(r.append(nil)) // the peer may be gone
	_ = sock.Close()
}

func (f *iface) dropHalfOpen(id uint32) {
	c := f.halfOpen[id]
	delete(f.halfOpen, id)
	_ = f.epoll.Del(c.sock.FD())
	_ = c.sock.Close()
}

// dropOldestHalfOpen closes the oldest half-open connection. There must be one.
func (f *iface) dropOldestHalfOpen() {
	for {
		f.halfOpenOldest++
		if _, ok := f.halfOpen[f.halfOpenOldest]; ok {
			f.dropHalfOpen(f.halfOpenOldest)
			return
		}
	}
}

// expireHalfOpen closes half-open connections without OPEN after openTimeout.
func (f *iface) expireHalfOpen(now ucs.Time) {
	for id, c := range f.halfOpen {
		if now.Sub(c.since) > openTimeout {
			f.dropHalfOpen(id)
		}
	}
}

// acceptOpen handles b, the OPEN of half-open connection m with number id. It makes a
// connection and sends ACCEPT, or merges it with a crossed connect of this side.
//
// Ownership: adopt owns fds. On an error the caller closes the socket.
func (f *iface) acceptOpen(id uint32, c halfOpenConn, b []byte, fds []int) error {
	sock := c.sock
	h, err := parseConnMsg(b)
	if err == nil && (h.kind != kindOpen || len(fds) != 3) {
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
	f.receiveOlderOpens(id, c.pid)
	for _, o := range f.ByPeer[h.name] {
		if o.M.State() == machine.StateOpening {
			o.readSocket() // the peer may have sent ACCEPT on it before this OPEN
		}
	}
	e := f.matchOpen(&h)
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
		return f.mergeCrossing(e, sock, h, p, fds)
	}
	if e, err = f.newEP(h.name, p.layout.MaxBulk()); err != nil {
		shmem.CloseFDs(fds[1:]...)
		return errors.Join(err, p.seg.Close())
	}
	if f.hasClosing(h.name) {
		e.Add(conn.Separate)
	}
	e.addPair(p)
	e.sock = sock
	if err = e.attachPeer(h, fds[1], fds[2]); err == nil {
		err = e.watch()
	}
	if err != nil {
		_ = f.epoll.Del(sock.FD())
		e.sock = nil
		f.unregister(e)
		return errors.Join(err, e.release())
	}
	f.Count(e)
	f.stats.Inc(statAccepted)
	e.step(machine.Event{Kind: machine.EventReceive, Msg: h.machineMsg()})
	return nil
}

// matchOpen returns this side's pending connect to the sender of OPEN message h, or nil.
// Both sides then connect at the same time. There is no crossing once this side has read
// the peer's ACCEPT.
func (f *iface) matchOpen(h *connMsg) *ep {
	e := f.connecting[h.name]
	if e == nil || h.flags&flagSeparate != 0 {
		return nil
	}
	if e.Life != conn.Open || e.crossedSock != nil {
		return nil
	}
	localMax, remoteMax := e.maxBulk, h.layout().MaxBulk()
	if e.M.WinsCrossing(h.worker, h.conn) {
		localMax, remoteMax = remoteMax, localMax
	}
	if remoteMax < localMax {
		return nil // the kept ring pair would be too small for the other side's longest message
	}
	return e
}

// mergeCrossing merges the peer's connect, with ring pair p, into e, this side's connect. Both
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
func (f *iface) mergeCrossing(e *ep, sock *shmem.Conn, h connMsg, p *pair, fds []int) error {
	if err := e.attachPeer(h, fds[1], fds[2]); err != nil {
		return errors.Join(err, p.seg.Close())
	}
	e.addPair(p)
	f.Count(e)
	f.stats.Inc(statCrossed)
	if e.M.WinsCrossing(h.worker, h.conn) {
		e.crossedSock = sock
		e.step(machine.Event{Kind: machine.EventReceive, Msg: h.machineMsg()})
		return nil
	}
	delete(f.connecting, e.peer)
	e.maxBulk = p.layout.MaxBulk()
	old := e.sock
	e.sock = sock
	if old != nil {
		_ = f.epoll.Del(old.FD())
	}
	e.step(machine.Event{Kind: machine.EventReceive, Msg: h.machineMsg()})
	if old != nil {
		if err := old.Close(); err != nil {
			f.d.logf("close a socket", err)
		}
	}
	if err := e.watch(); err != nil {
		f.FailLater(e, fmt.Errorf("%w: %w", ucs.ErrPeerFailed, err))
	}
	return nil
}
