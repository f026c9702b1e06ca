package shmem

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// backlog is the maximum number of connections that wait for Accept. The system limits it
// to net.core.somaxconn.
const backlog = 4096

// Listener accepts connections from processes of this host.
type Listener struct {
	fd   *handle
	path string // file that Close removes; "" for abstract names
}

// Listen binds name: an abstract name if it begins with '@', otherwise a path. Only this
// user may connect to the socket file of a path. Close removes the file.
//
// Errors: the system's (EADDRINUSE: the name is in use).
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
	// bind sets the mode of the file to that of the descriptor, less the umask. So there is no
	// moment at which other users could connect.
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

// newSocket returns a socket to bind or connect to name. It rejects the empty name and
// "@", for which the kernel would choose a name.
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

// Accept accepts the next connection; ErrWouldBlock if there is none. The caller checks
// by Conn.Peer whether the peer may connect.
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

// FD returns the descriptor to watch for EventIn; -1 after Close.
func (l *Listener) FD() int { return l.fd.num() }

// Close stops listening, refuses connections that are not accepted yet, and removes the
// socket file. Idempotent.
func (l *Listener) Close() error {
	var err error
	if l.path != "" {
		err = unix.Unlink(l.path)
		l.path = ""
	}
	return errors.Join(err, l.fd.close())
}

// CloseKeepFile is Close without the removal of the socket file: later dials are refused. It
// returns the file's path, which the caller must remove; "" if there is none.
func (l *Listener) CloseKeepFile() (path string, err error) {
	path, l.path = l.path, ""
	return path, l.Close()
}

// Dial connects to the Listener with this name. It never blocks: a local connection is
// established before the peer accepts it.
//
// Errors: ErrWouldBlock if the peer's backlog is full, dial again later; else the
// system's (ECONNREFUSED, ENOENT: no listener; EACCES: another user's).
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
		_ = h.close() // err is the cause; a new socket closes without an error
		return nil, err
	}
	return &Conn{fd: h}, nil
}
