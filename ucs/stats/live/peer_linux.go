package live

import (
	"net"

	"golang.org/x/sys/unix"
)

// hasPeerCred reports that the system identifies the process at the other end of a socket.
const hasPeerCred = true

// peerUID returns the user of the process at the other end, at the time when that process
// connected or began to listen.
func peerUID(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if cerr != nil {
		return 0, cerr
	}
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
