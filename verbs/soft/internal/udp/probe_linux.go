package udp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Probe makes each system call that sends or receives packets, over a socket pair, and
// returns an error for the first that the system refuses. A sandbox may forbid a call
// that is first made for a packet, and a refused packet looks like a lost one.
func Probe() error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("socketpair: %w", err)
	}
	out, in := fds[0], fds[1]
	var name [unix.SizeofSockaddrInet6]byte
	b := make([]byte, 1)
	iov := unix.Iovec{Base: &b[0]}
	iov.SetLen(len(b))
	var m [1]mmsghdr
	m[0].hdr.Iov = &iov
	m[0].hdr.SetIovlen(1)
	for _, c := range []struct {
		name string
		call func() unix.Errno
	}{
		{"sendto", func() unix.Errno { return rawSendto(out, b, &name, 0) }},
		{"sendmsg", func() unix.Errno { return rawSendmsg(out, &m[0].hdr) }},
		{"sendmmsg", func() unix.Errno { _, errno := rawSendmmsg(out, m[:]); return errno }},
		{"recvmsg", func() unix.Errno { _, errno := rawRecvmsg(in, &m[0].hdr); return errno }},
		{"recvmmsg", func() unix.Errno { _, errno := rawRecvmmsg(in, m[:]); return errno }},
	} {
		errno := c.call()
		for errno == unix.EINTR {
			errno = c.call()
		}
		if errno != 0 && errno != unix.EAGAIN { // a full queue is no refusal
			err = fmt.Errorf("the system refuses %s: %w", c.name, errno)
			break
		}
	}
	return errors.Join(err, unix.Close(out), unix.Close(in))
}
