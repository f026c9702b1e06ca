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

// A connection of a peer begins as a half-open one: a socket without an OPEN. Their number and
// their time are bounded, so that silent peers do not keep others out. OPEN makes a connection of
// it, or merges it with a connect of this side that crosses it.

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
	// acceptPause is the time without accept after this process ran out of descriptors.
	// The listener stays readable in that state and would wake the worker repeatedly.
	acceptPause = 10 * time.Millisecond
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
			// Pause. A timer then wakes the worker if it sleeps, and service resumes.
			if f.acceptPausedUntil == 0 && f.epoll.Del(f.listener.FD()) == nil {
				f.acceptPausedUntil = ucs.Now().Add(acceptPause)
				event := f.event
				f.acceptTimer = time.AfterFunc(acceptPause, func() { _ = event.Signal() }) // fails only if the event is closed
			}
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

// acceptAll accepts the connections that have arrived, up to a bound that only a flood reaches.
func (f *iface) acceptAll() {
	for range maxHalfOpen {
		before := f.halfOpenID
		if f.accept(); f.halfOpenID == before {
			return
		}
	}
}

// receiveOpen reads OPEN from half-open connection id, if it has arrived, and handles it. If the
// OPEN cannot be accepted, it sends REJECT with the reason.
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
		f.openDepth++
		err = f.acceptOpen(id, c, b[:n], fds)
		f.openDepth--
	}
	if err != nil {
		f.stats.Inc(statRefused)
		f.d.logf("refused a connection", err)
		r := f.newConnMsg(kindReject, 0)
		r.reason = err.Error()
		_ = c.sock.Send(r.append(nil)) // the peer may be gone
		_ = c.sock.Close()
	}
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

// acceptOpen handles b, the OPEN of half-open connection c with number id. It makes a
// connection and sends ACCEPT, or merges it with a crossed connect of this side.
//
// Ownership: acceptOpen owns fds. On an error the caller closes the socket.
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

	// What the peer has sent before this OPEN is handled first. Its process sends OPEN on one
	// connection before it connects the next, so older OPENs have arrived. It may also have
	// sent ACCEPT on a connect of this side.
	var older []uint32
	for o, hc := range f.halfOpen {
		if o < id && hc.pid == c.pid {
			older = append(older, o)
		}
	}
	slices.Sort(older)
	for _, o := range older {
		f.receiveOpen(o)
	}
	for _, o := range f.ByPeer[h.name] {
		if o.M.State() == machine.StateOpening {
			o.readSocket()
		}
	}

	// A connect of this side that is pending crosses the peer's. There is no crossing once this
	// side has read the peer's ACCEPT, or if the ring pair that is kept would be too small for the
	// other side's longest message.
	e := f.connecting[h.name]
	if e != nil {
		localMax, remoteMax := e.maxBulk, h.layout().MaxBulk()
		if e.M.WinsCrossing(h.worker, h.conn) {
			localMax, remoteMax = remoteMax, localMax
		}
		if h.flags&flagSeparate != 0 || e.Life != conn.Open || e.crossedSock != nil || remoteMax < localMax {
			e = nil
		}
	}
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
		return errors.Join(err, f.remove(e))
	}
	f.Count(e)
	f.stats.Inc(statAccepted)
	e.step(machine.Event{Kind: machine.EventReceive, Msg: h.machineMsg()})
	return nil
}

// mergeCrossing merges the peer's connect, with ring pair p, into e, this side's connect. Both
// sides have sent OPEN with a ring pair of their own, and both may have sent messages in
// it. One of the two connects is kept: that of the smaller worker UUID (machine.WinsCrossing).
//
// If this side's connect is kept, the machine replies OPEN_CROSSED on the peer's socket,
// which stays in e.crossedSock until ACCEPT. Otherwise the machine sends ACCEPT on the peer's
// socket, and this side closes its own. The side whose connect is dropped puts a switch-over
// marker into its own ring pair. Its peer reads that ring up to the marker, then the kept one.
// So no message is lost or reordered.
//
// Ownership: mergeCrossing owns fds; fds[0] belongs to p already.
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
