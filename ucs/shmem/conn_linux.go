package shmem

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// MaxFDs is the maximum number of descriptors in one message.
const MaxFDs = 8

// Conn is one end of a connection between two processes of this host. It preserves
// message boundaries and order, and carries descriptors with the bytes.
type Conn struct {
	fd *handle
}

// Cred identifies the process at the other end of a Conn: the one that dialled if the
// Conn was accepted, the one that listened if it was dialled.
type Cred struct {
	PID int // 0: not visible in this process's pid namespace
	UID uint32
	GID uint32
}

// Send sends b as one message, with copies of fds. b must not be empty: an empty message
// would look like a hang-up.
//
// Ownership: b and fds stay with the caller.
//
// Errors: ErrWouldBlock, nothing was sent; else the system's (EPIPE, ECONNRESET: the peer
// hung up; EMSGSIZE: longer than the socket's buffer).
func (c *Conn) Send(b []byte, fds ...int) error {
	fd, err := c.fd.open("send")
	if err != nil {
		return err
	}
	if len(b) == 0 {
		return fmt.Errorf("send empty message: %w", ucs.ErrInvalid)
	}
	if len(fds) > MaxFDs {
		return fmt.Errorf("send %d descriptors: %w", len(fds), ErrDescriptors)
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	err = retry(func() error { return unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT) })
	if err == unix.EAGAIN {
		return ErrWouldBlock
	}
	if err != nil {
		return fmt.Errorf("send %d bytes, %d descriptors: %w", len(b), len(fds), err)
	}
	return nil
}

// Recv receives one message into b, and its descriptors.
//
// Ownership: the caller closes fds (CloseFDs).
//
// Errors: ErrWouldBlock; io.EOF if the peer hung up and all its messages are received;
// ucs.ErrTruncated if the message is longer than b; ErrDescriptors. After the last two, b
// holds n bytes of the message. The rest is lost and its descriptors are closed.
func (c *Conn) Recv(b []byte) (n int, fds []int, err error) {
	fd, err := c.fd.open("recv")
	if err != nil {
		return 0, nil, err
	}
	if len(b) == 0 {
		return 0, nil, fmt.Errorf("recv into no buffer: %w", ucs.ErrInvalid)
	}
	var space [64]byte // at least CmsgSpace(4 * MaxFDs) on every system
	oob := space[:unix.CmsgSpace(4*MaxFDs)]
	var oobn, flags int
	reset := false
	err = retry(func() error {
		var e error
		n, oobn, flags, _, e = unix.Recvmsg(fd, b, oob, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
		if e == unix.ECONNRESET && !reset {
			// Reported once, if the peer closed without reading everything. Messages
			// that it sent before are still queued.
			reset = true
			return unix.EINTR
		}
		return e
	})
	switch {
	case err == unix.EAGAIN:
		return 0, nil, ErrWouldBlock
	case err != nil:
		return 0, nil, fmt.Errorf("recv: %w", err)
	case n == 0 && oobn == 0:
		return 0, nil, io.EOF
	}
	fds, err = rights(oob[:oobn])
	if err == nil {
		err = complete(flags, len(fds))
	}
	if err != nil {
		CloseFDs(fds...)
		return n, nil, err
	}
	return n, fds, nil
}

// complete returns an error if bytes or descriptors of a message were truncated.
func complete(flags, fds int) error {
	switch {
	case fds > MaxFDs, fds == MaxFDs && flags&unix.MSG_CTRUNC != 0:
		return fmt.Errorf("recv more than %d: %w", MaxFDs, ErrDescriptors)
	case flags&unix.MSG_CTRUNC != 0: // the kernel stops at the first that it cannot install
		return fmt.Errorf("recv: this process may not have more open files (raise ulimit -n), or may not have these: %w", ErrDescriptors)
	}
	if flags&unix.MSG_TRUNC != 0 {
		return fmt.Errorf("recv: %w", ucs.ErrTruncated)
	}
	return nil
}

// rights returns the descriptors in a message's control data, also with an error.
func rights(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("recv control data: %w (%w)", ErrDescriptors, err)
	}
	for i := range msgs {
		got, e := unix.ParseUnixRights(&msgs[i])
		if e != nil {
			err = fmt.Errorf("recv control data: %w (%w)", ErrDescriptors, e)
		}
		fds = append(fds, got...)
	}
	return fds, err
}

// Peer returns the credentials of the other end, which the kernel recorded when the
// connection was made.
func (c *Conn) Peer() (Cred, error) {
	fd, err := c.fd.open("peer credentials")
	if err != nil {
		return Cred{}, err
	}
	u, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Cred{}, fmt.Errorf("peer credentials: %w", err)
	}
	return Cred{PID: int(u.Pid), UID: u.Uid, GID: u.Gid}, nil
}

// PeerPidfd returns a descriptor of the peer's process. It becomes readable when the
// process exits.
//
// Ownership: the caller closes the descriptor.
//
// Errors: ucs.ErrUnsupported if neither SO_PEERPIDFD nor pidfd_open is permitted; ESRCH
// if the peer is dead already.
func (c *Conn) PeerPidfd() (int, error) {
	fd, err := c.fd.open("peer pidfd")
	if err != nil {
		return -1, err
	}
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	switch err {
	case nil:
		unix.CloseOnExec(pidfd)
		return pidfd, nil
	case unix.ENOPROTOOPT, unix.EOPNOTSUPP, unix.EPERM, unix.ENOSYS, unix.ENODATA:
		return c.openPeer(fd)
	case unix.EINVAL: // kernels before 6.16: the process is reaped
		return -1, fmt.Errorf("peer pidfd: %w", unix.ESRCH)
	}
	return -1, fmt.Errorf("peer pidfd: %w", err)
}

// openPeer is PeerPidfd by process id, for kernels before 6.5. The id may have been
// reused. This is excluded if the peer still holds its end of the connection afterwards.
func (c *Conn) openPeer(fd int) (int, error) {
	cred, err := c.Peer()
	if err != nil {
		return -1, err
	}
	if cred.PID == 0 {
		return -1, unsupported("peer pidfd", errors.New("peer in another pid namespace"))
	}
	pidfd, err := unix.PidfdOpen(cred.PID, 0)
	if err == unix.ENOSYS || err == unix.EPERM {
		return -1, unsupported("pidfd_open", err)
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd_open %d: %w", cred.PID, err)
	}
	poll := []unix.PollFd{{Fd: int32(fd)}}
	if _, err := unix.Poll(poll, 0); err != nil || poll[0].Revents&unix.POLLHUP != 0 {
		CloseFDs(pidfd)
		return -1, fmt.Errorf("pidfd_open %d: %w", cred.PID, unix.ESRCH)
	}
	return pidfd, nil
}

// FD returns the descriptor to watch for EventIn; -1 after Close.
func (c *Conn) FD() int { return c.fd.num() }

// Close closes this end. The peer can still receive the messages sent before. Idempotent.
func (c *Conn) Close() error { return c.fd.close() }
