package shmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// backlog is how many peers may have dialled before Accept; the system caps it
// at net.core.somaxconn.
const backlog = 4096

// Listener takes connections from processes of this host.
type Listener struct {
	fd   *handle
	path string // file to remove at Close; "" for abstract names
}

// Listen binds name: an abstract name when it begins with '@', else a path
// whose socket file is made for this user alone and removed at Close.
//
// Errors: the system's (EADDRINUSE: the name is taken).
func Listen(name string) (*Listener, error) {
	l, err := listen(name)
	if err != nil {
		return nil, fmt.Errorf("listen on %q: %w", name, err)
	}
	return l, nil
}

func listen(name string) (*Listener, error) {
	h, err := newSocket(name)
	if err != nil {
		return nil, err
	}
	// The mode of the descriptor becomes, less the umask, that of the file that
	// bind makes: there is no moment at which others could connect.
	if err := unix.Fchmod(h.num(), 0o600); err != nil {
		return nil, errors.Join(err, h.close())
	}
	if err := unix.Bind(h.num(), &unix.SockaddrUnix{Name: name}); err != nil {
		return nil, errors.Join(err, h.close())
	}
	l := &Listener{fd: h}
	if name[0] != '@' {
		l.path = name
	}
	if err := unix.Listen(h.num(), backlog); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// newSocket refuses the empty name and "@", for which the kernel would choose
// one.
func newSocket(name string) (*handle, error) {
	if name == "" || name == "@" {
		return nil, ucs.ErrInvalid
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return newHandle(fd), nil
}

// Accept takes the next connection; ErrWouldBlock when there is none. Whether
// the peer may connect is the caller's to decide, from Conn.Peer.
func (l *Listener) Accept() (*Conn, error) {
	lfd, err := l.fd.open("accept")
	if err != nil {
		return nil, err
	}
	for {
		fd, _, err := unix.Accept4(lfd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			return &Conn{fd: newHandle(fd)}, nil
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EAGAIN:
			return nil, ErrWouldBlock
		default:
			return nil, fmt.Errorf("accept: %w", err)
		}
	}
}

// FD is the descriptor to watch for EventIn; -1 after Close.
func (l *Listener) FD() int { return l.fd.num() }

// Close stops listening, refuses the connections not yet accepted and removes
// the socket's file. Idempotent.
func (l *Listener) Close() error {
	var err error
	if l.path != "" {
		err = unix.Unlink(l.path)
		l.path = ""
	}
	return errors.Join(err, l.fd.close())
}

// Leave is Close, but the socket's file stays: who dials it is refused. It gives the
// file's name, which is the caller's to remove; "" where there is none.
func (l *Listener) Leave() (path string, err error) {
	path, l.path = l.path, ""
	return path, l.Close()
}

// Dial connects to a Listener of that name. It never waits: a local connection
// is made at once, before the peer accepts it.
//
// Errors: ErrWouldBlock when the peer's backlog is full, dial again later; else
// the system's (ECONNREFUSED, ENOENT: nobody listens; EACCES: not this user).
func Dial(name string) (*Conn, error) {
	c, err := dial(name)
	if err == unix.EAGAIN {
		return nil, ErrWouldBlock
	}
	if err != nil {
		return nil, fmt.Errorf("dial %q: %w", name, err)
	}
	return c, nil
}

func dial(name string) (*Conn, error) {
	h, err := newSocket(name)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return unix.Connect(h.num(), &unix.SockaddrUnix{Name: name}) })
	if err != nil {
		_ = h.close() // the reason is in err; a fresh socket closes without one
		return nil, err
	}
	return &Conn{fd: h}, nil
}
