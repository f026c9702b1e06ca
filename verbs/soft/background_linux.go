package soft

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// poller is the poller in which the background goroutine of a UDP device sleeps: an epoll
// set that is registered with the runtime's poller. It contains the socket during the
// sleep only. A socket that stays in a set makes each packet sent to it a tenth more
// expensive.
type poller struct {
	file   *os.File // the epoll set
	set    int      // its descriptor
	socket int
}

func (u *udpPort) newPoller() (*poller, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	if err := unix.SetNonblock(set, true); err != nil { // the runtime polls non-blocking descriptors only
		_ = unix.Close(set)
		return nil, fmt.Errorf("set epoll set non-blocking: %w", err)
	}
	return &poller{os.NewFile(uintptr(set), "soft device"), set, u.fd}, nil
}

// addSocket adds the socket to the set.
func (p *poller) addSocket() error {
	return unix.EpollCtl(p.set, unix.EPOLL_CTL_ADD, p.socket, &unix.EpollEvent{Events: unix.EPOLLIN})
}

// removeSocket removes it.
func (p *poller) removeSocket() { _ = unix.EpollCtl(p.set, unix.EPOLL_CTL_DEL, p.socket, nil) }

// setDeadline sets the time after which lie returns; negative: none. It replaces a deadline
// that wakeSlow set.
func (p *poller) setDeadline(limit time.Duration) {
	at := time.Time{}
	if limit >= 0 {
		at = time.Now().Add(limit) //nolint:forbidigo // the runtime's poller counts by it
	}
	_ = p.file.SetReadDeadline(at) // never fails: the descriptor is open and in the runtime's poller
}

// wait waits until the socket is readable, the deadline expires, or wakeSlow is called.
func (p *poller) wait() {
	raw, err := p.file.SyscallConn()
	if err != nil {
		return
	}
	var ev [1]unix.EpollEvent
	_ = raw.Read(func(set uintptr) bool { // an error means that the deadline expired
		n, err := unix.EpollWait(int(set), ev[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
