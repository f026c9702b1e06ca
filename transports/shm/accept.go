package shm

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/fault"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
	"github.com/goucx/goucx/ucs/shmem"
)

// embryo is a connection whose hello has not come yet.
type embryo struct {
	sock  *shmem.Conn
	since ucs.Time
}

const (
	// embryoLife is how long a connection may stay without a hello.
	embryoLife = 5 * time.Second
	maxEmbryos = 1024
)

// accept takes new connections, a bounded number a call.
func (f *iface) accept() {
	for range 16 {
		if len(f.embryos) >= maxEmbryos {
			return
		}
		sock, err := f.listener.Accept()
		if err != nil {
			return // none, or one that is gone already, or no descriptor left: later
		}
		if cred, err := sock.Peer(); err != nil || cred.UID != uint32(os.Geteuid()) {
			f.stats.Inc(statRefused)
			f.d.logf("refused a connection of another user", err)
			_ = sock.Close()
			continue
		}
		f.embryoID++
		f.embryos[f.embryoID] = embryo{sock, ucs.Now()}
		if err := f.epoll.Add(sock.FD(), evEmbryo|uint64(f.embryoID), shmem.EventIn); err != nil {
			f.dropEmbryo(f.embryoID)
			continue
		}
		f.welcome(f.embryoID)
	}
}

// welcome reads an embryo's hello if it is there and makes the connection.
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
		err = f.adopt(m.sock, b[:n], fds)
	}
	if err != nil {
		f.refuse(m.sock, err)
	}
}

// refuse tells the peer why it is not taken, and hangs up.
func (f *iface) refuse(sock *shmem.Conn, why error) {
	f.stats.Inc(statRefused)
	f.d.logf("refused a connection", why)
	r := f.hello(kindRefuse, 0)
	r.reason = why.Error()
	_ = sock.Send(r.append(nil)) // it may be gone
	_ = sock.Close()
}

func (f *iface) dropEmbryo(id uint32) {
	m := f.embryos[id]
	delete(f.embryos, id)
	_ = f.epoll.Del(m.sock.FD())
	_ = m.sock.Close()
}

// reapEmbryos drops connections that never said hello.
func (f *iface) reapEmbryos(now ucs.Time) {
	for id, m := range f.embryos {
		if now.Sub(m.since) > embryoLife {
			f.dropEmbryo(id)
		}
	}
}

// adopt makes a connection from a hello and answers it. It owns fds; the socket
// is the caller's again on an error.
func (f *iface) adopt(sock *shmem.Conn, b []byte, fds []int) error {
	h, err := parseHello(b)
	if err == nil && (h.kind != kindHello || len(fds) != 3) {
		err = fmt.Errorf("message of kind %d with %d descriptors is no hello: %w", h.kind, len(fds), ucs.ErrInvalid)
	}
	l := ring.Layout{Cells: int(h.cells), Bulk: int(h.bulk)}
	if err == nil {
		err = l.Check()
	}
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	seg, err := shmem.Map(fds[0], pairSize(l))
	if err != nil {
		shmem.CloseFDs(fds...)
		return err
	}
	e, err := f.newEP(h.name, l, seg)
	if err != nil {
		shmem.CloseFDs(fds[1:]...)
		return err
	}
	if err = seg.CloseFD(); err == nil {
		err = f.answer(e, sock, h, fds[1], fds[2])
	} else {
		shmem.CloseFDs(fds[1:]...)
	}
	if err != nil {
		_ = f.epoll.Del(sock.FD())
		e.sock = nil
		f.forget(e)
		return errors.Join(err, e.release())
	}
	f.accepted++
	f.stats.Inc(statAccepted)
	f.heat(e)
	f.recheckLater(e) // what was sent before the answer came with no hint
	return nil
}

// answer sends the accept. The ring is looked at after it, by recheck. A peer
// that is gone by now leaves what it sent, and how it ended, behind.
func (f *iface) answer(e *ep, sock *shmem.Conn, h hello, pageFD, eventFD int) error {
	e.sock = sock
	if err := e.meet(h, pageFD, eventFD); err != nil {
		return err
	}
	if err := e.watch(); err != nil {
		return err
	}
	if fault.Enabled {
		fault.At(fault.Accept)
	}
	err := sock.Send(f.hello(kindAccept, e.slot).append(nil), f.pageOf(e.slot).seg.FD(), f.event.FD())
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		e.lost()
		return nil
	}
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
