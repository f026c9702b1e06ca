package shm

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

const (
	// maxKeyConns is the maximum number of connections of a key server. A peer keeps one
	// while it holds keys of private memory, and others only for one request. At the
	// limit, the oldest connection without a grant is closed for a new one. One with a
	// grant is never closed: its peer would conclude that this process has exited.
	maxKeyConns = 1024
	acceptTag   = 0 // the listener's data in the epoll set; connections have numbers from 1
	// maxPerEvent is the maximum number of accepts or requests per event, so that a peer
	// that floods the server does not delay others.
	maxPerEvent = 16
	// acceptBackoff is the delay after a failed accept.
	acceptBackoff = 20 * time.Millisecond
)

// keyServer replies to peers that unpack keys of a domain.
//
// Concurrency: its goroutine owns the connections. It sleeps in the Go netpoller while
// there are no requests.
type keyServer struct {
	d        *domain
	exporter *exporter

	listener *shmem.Listener
	epoll    *shmem.Epoll
	poll     *os.File // duplicate of the epoll descriptor, in the Go netpoller
	conns    map[uint64]*keyConn
	next     uint64
	oldest   uint64        // connections with smaller numbers are closed or have a grant
	limit    int           // maximum number of connections
	refused  atomic.Uint64 // refused requests and connections

	ended   chan struct{}
	once    sync.Once
	closing atomic.Bool // close was called: raw.Read returns no distinct error for it
	err     error       // result of release; valid after ended
}

// keyConn is the connection of a peer; granted is set after the first grant.
type keyConn struct {
	*shmem.Conn
	granted bool
}

func startKeyServer(name string, d *domain, l *exporter) (*keyServer, error) {
	s := &keyServer{d: d, exporter: l, next: 1, oldest: 1, limit: maxKeyConns, conns: make(map[uint64]*keyConn), ended: make(chan struct{})}
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
	if err := unix.SetNonblock(fd, true); err != nil { // os.NewFile adds only a non-blocking descriptor to the netpoller
		return errors.Join(fmt.Errorf("epoll descriptor: %w", err), unix.Close(fd))
	}
	s.poll = os.NewFile(uintptr(fd), "key server")
	return nil
}

// run serves requests until close. It waits in the Go netpoller between them.
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

// serve handles all events that are ready. An error ends the server.
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
			} else if c := s.conns[e.Data]; c != nil && !s.serveConn(c) {
				s.drop(e.Data)
			}
		}
	}
	return nil
}

// accept accepts waiting connections. It closes those of other users, and new ones if
// there is no room.
func (s *keyServer) accept() {
	for range maxPerEvent {
		c, err := s.listener.Accept()
		if errors.Is(err, shmem.ErrWouldBlock) {
			return
		}
		if (errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE)) && s.makeRoom() {
			continue
		}
		if err != nil {
			s.refuse("accept", err)
			time.Sleep(acceptBackoff)
			return // out of descriptors: the event stays ready and accept runs again
		}
		err = sameUser(c)
		if err == nil && len(s.conns) >= s.limit && !s.makeRoom() {
			err = fmt.Errorf("%d peers hold keys already", len(s.conns))
		}
		if err == nil {
			err = s.epoll.Add(c.FD(), s.next, shmem.EventIn)
		}
		if err != nil {
			s.refuse("connection", err)
			_ = c.Close() // the peer sees the hang-up
			continue
		}
		s.conns[s.next] = &keyConn{Conn: c}
		s.next++
	}
}

// makeRoom closes the oldest connection without a grant. It serves the requests waiting
// on a connection first, as they may be granted. It returns false if there is none.
func (s *keyServer) makeRoom() bool {
	for ; s.oldest < s.next; s.oldest++ {
		c := s.conns[s.oldest]
		if c == nil || c.granted || s.serveConn(c) && c.granted {
			continue
		}
		s.drop(s.oldest)
		return true
	}
	return false
}

// serveConn serves up to maxPerEvent requests of a connection. It returns false if the
// connection must be closed.
func (s *keyServer) serveConn(c *keyConn) bool {
	var buf [4 * requestLen]byte // another version may be longer
	for range maxPerEvent {
		n, fds, err := c.Recv(buf[:])
		if errors.Is(err, shmem.ErrWouldBlock) {
			return true
		}
		shmem.CloseFDs(fds...) // requests carry no descriptors
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

// reply handles one request and sends the reply. An error means that the connection has
// failed or that the request is invalid.
func (s *keyServer) reply(c *keyConn, b []byte) error {
	var a keyRequest
	if err := a.parse(b); err != nil {
		r := keyReply{status: keyUnsupported}
		if e, ok := errors.AsType[*protocol.Error](err); ok {
			r.refused = e.Features
		}
		return errors.Join(err, c.Send(r.append(nil)))
	}
	if a.domain != s.d.id {
		r := keyReply{status: keyWrongDomain}
		return c.Send(r.append(nil))
	}
	region := s.exporter.Find(a.slot, a.gen)
	if region == nil {
		r := keyReply{status: keyRevoked}
		return c.Send(r.append(nil))
	}
	defer region.Release()
	var fds []int
	if a.wantTable {
		fds = append(fds, s.exporter.table.FD())
	}
	if fd := region.FD(); fd >= 0 {
		fds = append(fds, fd)
	}
	c.granted = true
	r := keyReply{status: keyOK, region: region.Key()}
	return c.Send(r.append(nil), fds...)
}

// refuse counts and logs a refused request or connection.
func (s *keyServer) refuse(op string, err error) {
	s.refused.Add(1)
	s.d.logf("key server refuses "+op, err)
}

func (s *keyServer) drop(id uint64) {
	c := s.conns[id]
	delete(s.conns, id)
	// Closing it removes it from the epoll set: no other process has the descriptor.
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

// release closes all descriptors. Once the server's goroutine runs, only that goroutine
// calls it.
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

// sameUser returns an error if the peer of c belongs to another user.
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

// tableBytes is the size of a domain's key table: 65,536 regions. Its pages are
// allocated at the first access.
const tableBytes = mapped.SlotBytes << 16

// exporter is the owner's side of a domain: its regions, the key table with their
// generations, and the key server.
type exporter struct {
	*mapped.Owner
	table  *shmem.Segment
	server *keyServer
}

// localExporters maps the identities of this process's domains to their exporters. Regions of this
// process are mapped already. A request to the own key server would also wait for a
// goroutine that may need this goroutine's processor.
var localExporters struct {
	sync.Mutex
	exporters map[uct.UUID]*exporter
}

// openExporter returns the domain's exporter and creates it at the first call. The caller holds
// exporterMu.
func (d *domain) openExporter() (*exporter, error) {
	d.mu.Lock()
	l, closed := d.exporter, d.closed
	d.mu.Unlock()
	if closed {
		return nil, ucs.ErrClosed
	}
	if l != nil {
		return l, nil
	}

	name := keySocket(socketDir.Get(d.settings))
	if len(name) > mapped.MaxSocket {
		return nil, fmt.Errorf("key socket %q: name longer than %d bytes: %w", name, mapped.MaxSocket, ucs.ErrInvalid)
	}
	seg, err := shmem.Create("goucx-keys", tableBytes)
	if err != nil {
		return nil, fmt.Errorf("key table: %w", err)
	}
	// The server's end closes the descriptor. The mapping is released when no key of
	// this process uses it.
	l = &exporter{table: seg}
	l.Owner = mapped.NewOwner(d.id, name, mapped.NewTable(seg.Bytes(), seg.Close), d.closeWait)
	l.server, err = startKeyServer(name, d, l)
	if err != nil {
		return nil, errors.Join(err, l.Owner.Close())
	}

	d.mu.Lock()
	d.exporter = l
	d.mu.Unlock()
	localExporters.Lock()
	if localExporters.exporters == nil {
		localExporters.exporters = make(map[uct.UUID]*exporter)
	}
	localExporters.exporters[d.id] = l
	localExporters.Unlock()
	return l, nil
}

// keySocket returns a unique socket name.
func keySocket(dir string) string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	name := "goucx-key-" + hex.EncodeToString(b[:])
	if dir == "" {
		return "@" + name
	}
	return filepath.Join(dir, name)
}

// close ends the server and releases the key table. All regions must be closed.
func (l *exporter) close() error {
	localExporters.Lock()
	for id, m := range localExporters.exporters {
		if m == l {
			delete(localExporters.exporters, id)
		}
	}
	localExporters.Unlock()
	return errors.Join(l.server.close(), l.Owner.Close())
}
