package soft

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// polled gives the socket once more, in the runtime's poller.
func (u *udpPort) polled() (*os.File, error) {
	fd, err := unix.FcntlInt(uintptr(u.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "soft device"), nil
}
