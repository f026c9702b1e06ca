package live

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/goucx/goucx/ucs"
)

// maxPath is the longest path of a Unix socket, in bytes.
const maxPath = 107

// readerTimeout bounds the time that a reader may take.
const readerTimeout = 2 * time.Second

// Server is a page being served.
//
// Concurrency: Close may be called from any goroutine.
type Server struct {
	path string
	// fallbackReason is the reason why path is not in the requested directory; nil: it is there.
	fallbackReason error
	listen         *net.UnixListener
	page           func() *Page
	pageMu         sync.Mutex // serializes calls of page
	handlers       sync.WaitGroup
}

// Serve serves the result of page through a new socket in dir. It creates dir if it does not
// exist. It calls page once for each reader, one at a time, in its own goroutines. Only
// processes of this user can read.
//
// If DefaultDir is not private to this user, Offer uses another directory that List finds.
//
// Errors:
//   - ucs.ErrUnsupported if the system does not report the user of a connecting process
//   - ucs.ErrInvalid if dir belongs to another user or is writable by others
//   - ucs.ErrTooLong if the path of the socket would be too long
//   - otherwise the system's errors
func Serve(dir string, page func() *Page) (*Server, error) {
	s := &Server{page: page}
	if err := s.open(dir); err != nil {
		return nil, fmt.Errorf("offer counters in %s: %w", dir, err)
	}
	s.handlers.Go(s.serve)
	return s, nil
}

func (s *Server) open(dir string) error {
	if !hasPeerCred {
		return ucs.ErrUnsupported
	}
	dir, instead, err := chooseDir(dir)
	if err != nil {
		return err
	}
	s.fallbackReason = instead
	sweep(dir)
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails; see crypto/rand
	name := fmt.Sprintf("%d-%x%s", os.Getpid(), random, suffix)
	// The name is hidden until the socket listens. So a visible socket that refuses a
	// connection is stale.
	hidden := filepath.Join(dir, "."+name)
	if len(hidden) > maxPath {
		return fmt.Errorf("socket path has %d bytes, at most %d are possible: %w", len(hidden), maxPath, ucs.ErrTooLong)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: hidden, Net: "unix"})
	if err != nil {
		return err
	}
	l.SetUnlinkOnClose(false)
	s.listen, s.path = l, filepath.Join(dir, name)
	err = os.Chmod(hidden, 0o600)
	if err == nil {
		err = os.Rename(hidden, s.path)
	}
	if err != nil {
		return errors.Join(err, l.Close(), os.Remove(hidden))
	}
	return nil
}

// expire makes reads and writes on c time out after d, unless stop is called before.
func expire(c net.Conn, d time.Duration) (stop func()) {
	t := time.AfterFunc(d, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() { t.Stop() }
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// FallbackReason returns the reason why the socket is not in the requested directory, which was
// DefaultDir. It returns nil if the socket is there.
func (s *Server) FallbackReason() error { return s.fallbackReason }

// serve accepts readers until Close.
func (s *Server) serve() {
	for {
		c, err := s.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // such as no free descriptors: pause instead of spinning
			time.Sleep(100 * time.Millisecond)
			continue
		}
		s.handlers.Go(func() { s.serveReader(c) })
	}
}

func (s *Server) serveReader(c *net.UnixConn) {
	defer func() { _ = c.Close() }()
	if uid, err := peerUID(c); err != nil || uid != os.Geteuid() {
		return
	}
	defer expire(c, readerTimeout)()
	var q [1]byte
	if n, err := c.Read(q[:]); n != 1 || err != nil || q[0] != requestByte {
		return
	}
	s.pageMu.Lock()
	b, err := json.Marshal(s.page())
	s.pageMu.Unlock()
	if err != nil {
		return
	}
	_, _ = c.Write(b) // an error means that the reader has disconnected
}

// Close stops serving the page and removes the socket. It is idempotent.
func (s *Server) Close() error {
	err := s.listen.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	s.handlers.Wait()
	return errors.Join(err, os.Remove(s.path))
}
