package shm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs/shmem"
)

const (
	// maxKeyConns bounds the connections of a key server. A peer keeps one for
	// as long as it holds keys of memory of the program, others for a moment. The oldest
	// by which nothing was granted is closed for a new one. Others are not: their peers
	// would take it for the end of this process.
	maxKeyConns = 1024
	acceptTag   = 0 // of the listener in the epoll set; connections count from 1
	// servePass bounds what one event has done, so that who dials or asks
	// without end holds nobody else up.
	servePass = 16
	// acceptNap is how long a server that cannot accept waits before it tries again.
	acceptNap = 20 * time.Millisecond
)

// keyServer answers peers that unpack keys of a domain. Its goroutine owns all
// that is in it and sleeps in the runtime's poller while nobody asks.
type keyServer struct {
	d      *domain
	lender *lender

	listener *shmem.Listener
	epoll    *shmem.Epoll
	poll     *os.File // the epoll descriptor, once more, in the runtime's poller
	conns    map[uint64]*keyConn
	next     uint64
	oldest   uint64        // nothing was granted by those from here on, perhaps
	limit    int           // of connections
	refused  atomic.Uint64 // requests and connections

	ended   chan struct{}
	once    sync.Once
	closing atomic.Bool // the end is in order: raw.Read has no error of its own for it
	err     error       // of ending; valid after ended
}

// keyConn is a peer's connection.
type keyConn struct {
	*shmem.Conn
	granted bool
}

func startKeyServer(name string, d *domain, l *lender) (*keyServer, error) {
	s := &keyServer{d: d, lender: l, next: 1, oldest: 1, limit: maxKeyConns, conns: make(map[uint64]*keyConn), ended: make(chan struct{})}
	err := s.open(name)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("key server: %w", err), s.release())
	}
	go s.run()
	return s, nil
}

func (s *keyServer) open(name string) (err error) {
	if s.listener, err = shmem.Listen(name); err != nil {
		return err
	}
	if s.epoll, err = shmem.NewEpoll(); err != nil {
		return err
	}
	if err = s.epoll.Add(s.listener.FD(), acceptTag, shmem.EventIn); err != nil {
		return err
	}
	fd, err := unix.FcntlInt(uintptr(s.epoll.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("duplicate epoll descriptor: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile asks the poller only then
		return errors.Join(fmt.Errorf("epoll descriptor: %w", err), unix.Close(fd))
	}
	s.poll = os.NewFile(uintptr(fd), "key server")
	return nil
}

func (s *keyServer) run() {
	defer close(s.ended)
	raw, err := s.poll.SyscallConn()
	if err == nil {
		err = raw.Read(func(uintptr) bool { return s.serve() != nil })
	}
	if !s.closing.Load() {
		s.d.logf("key server ended: peers cannot unpack new keys", err)
	}
	s.err = s.release()
}

// serve does all that there is to do. An error ends the server.
func (s *keyServer) serve() error {
	var events [16]shmem.Event
	for !s.closing.Load() {
		n, err := s.epoll.Wait(events[:], 0)
		if err != nil || n == 0 {
			return err
		}
		for _, e := range events[:n] {
			if e.Data == acceptTag {
				s.accept()
			} else if c := s.conns[e.Data]; c != nil && !s.answer(c) {
				s.drop(e.Data)
			}
		}
	}
	return nil
}

// accept takes waiting connections. It closes those of other users, and where there is
// no room the new one.
func (s *keyServer) accept() {
	for range servePass {
		c, err := s.listener.Accept()
		if errors.Is(err, shmem.ErrWouldBlock) {
			return
		}
		if (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) && s.makeRoom() {
			continue
		}
		if err != nil {
			s.refuse("accept", err)
			time.Sleep(acceptNap)
			return // out of descriptors: the event stays, and has it tried again
		}
		if err := s.admit(c); err != nil {
			s.refuse("connection", err)
			_ = c.Close() // the refusal is the answer
		}
	}
}

func (s *keyServer) admit(c *shmem.Conn) error {
	if err := sameUser(c); err != nil {
		return err
	}
	if len(s.conns) >= s.limit && !s.makeRoom() {
		return fmt.Errorf("%d peers hold keys already", len(s.conns))
	}
	if err := s.epoll.Add(c.FD(), s.next, shmem.EventIn); err != nil {
		return err
	}
	s.conns[s.next] = &keyConn{Conn: c}
	s.next++
	return nil
}

// makeRoom closes the oldest connection by which nothing was granted and no request
// waits, and reports whether there was one.
func (s *keyServer) makeRoom() bool {
	for ; s.oldest < s.next; s.oldest++ {
		c := s.conns[s.oldest]
		if c == nil || c.granted || s.answer(c) && c.granted {
			continue
		}
		s.drop(s.oldest)
		return true
	}
	return false
}

// answer serves some of the requests that wait on a connection; false: hang up.
func (s *keyServer) answer(c *keyConn) bool {
	var buf [askLen + 1]byte // one more, so that a longer request is seen to be
	for range servePass {
		n, fds, err := c.Recv(buf[:])
		if errors.Is(err, shmem.ErrWouldBlock) {
			return true
		}
		shmem.CloseFDs(fds...) // nobody asked for any
		if err != nil {
			return false
		}
		if err := s.reply(c, buf[:n]); err != nil {
			s.refuse("request", err)
			return false
		}
	}
	return true
}

// reply answers one request. Errors are of the connection, or of a request
// that no peer of ours makes.
func (s *keyServer) reply(c *keyConn, b []byte) error {
	var a keyAsk
	if err := a.parse(b); err != nil {
		r := keyReply{answer: answerVersion}
		return errors.Join(err, c.Send(r.append(nil)))
	}
	if a.domain != s.d.id {
		r := keyReply{answer: answerDomain}
		return c.Send(r.append(nil))
	}
	region := s.lender.Find(a.slot, a.gen)
	if region == nil {
		r := keyReply{answer: answerGone}
		return c.Send(r.append(nil))
	}
	defer region.Release()
	var fds []int
	if a.wantTable {
		fds = append(fds, s.lender.table.FD())
	}
	if fd := region.FD(); fd >= 0 {
		fds = append(fds, fd)
	}
	c.granted = true
	r := keyReply{answer: answerOK, region: region.Key()}
	return c.Send(r.append(nil), fds...)
}

func (s *keyServer) refuse(what string, err error) {
	s.refused.Add(1)
	s.d.logf("key server refuses "+what, err)
}

func (s *keyServer) drop(id uint64) {
	c := s.conns[id]
	delete(s.conns, id)
	// Closing takes it out of the set: the descriptor was never passed on.
	if err := c.Close(); err != nil {
		s.d.logf("key server hangs up", err)
	}
}

// close ends the server and waits for its goroutine. Idempotent.
func (s *keyServer) close() error {
	s.once.Do(func() {
		s.closing.Store(true)
		if err := s.poll.Close(); err != nil {
			s.d.logf("key server poll descriptor", err)
		}
	})
	<-s.ended
	return s.err
}

// release gives back what open and accept took. Only the server's goroutine
// calls it once that runs.
func (s *keyServer) release() error {
	var err error
	for _, c := range s.conns {
		err = errors.Join(err, c.Close())
	}
	s.conns = nil
	if s.listener != nil {
		err = errors.Join(err, s.listener.Close())
	}
	if s.epoll != nil {
		err = errors.Join(err, s.epoll.Close())
	}
	return err
}

// sameUser refuses a connection from another user.
func sameUser(c *shmem.Conn) error {
	p, err := c.Peer()
	if err != nil {
		return err
	}
	if me := uint32(os.Geteuid()); p.UID != me {
		return fmt.Errorf("process %d is of user %d, this one of user %d: %w", p.PID, p.UID, me, os.ErrPermission)
	}
	return nil
}
