package soft

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bed is the poller in which the background goroutine of a UDP device sleeps: an epoll
// set that is registered with the runtime's poller. It contains the socket during the
// sleep only. A socket that stays in a set makes each packet sent to it a tenth more
// expensive.
type bed struct {
	file   *os.File // the epoll set
	set    int      // its descriptor
	socket int
}

func (u *udpPort) bed() (*bed, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	if err := unix.SetNonblock(set, true); err != nil { // the runtime polls non-blocking descriptors only
		_ = unix.Close(set)
		return nil, fmt.Errorf("set epoll set non-blocking: %w", err)
	}
	return &bed{os.NewFile(uintptr(set), "soft device"), set, u.fd}, nil
}

// enter adds the socket to the set.
func (b *bed) enter() error {
	return unix.EpollCtl(b.set, unix.EPOLL_CTL_ADD, b.socket, &unix.EpollEvent{Events: unix.EPOLLIN})
}

// leave removes it.
func (b *bed) leave() { _ = unix.EpollCtl(b.set, unix.EPOLL_CTL_DEL, b.socket, nil) }

// alarm sets the time after which lie returns; negative: none. It replaces a deadline
// that wakeUp set.
func (b *bed) alarm(limit time.Duration) {
	at := time.Time{}
	if limit >= 0 {
		at = time.Now().Add(limit) //nolint:forbidigo // the runtime's poller counts by it
	}
	_ = b.file.SetReadDeadline(at) // never fails: the descriptor is open and in the runtime's poller
}

// lie waits until the socket is readable, the deadline expires, or wakeUp is called.
func (b *bed) lie() {
	raw, err := b.file.SyscallConn()
	if err != nil {
		return
	}
	var ev [1]unix.EpollEvent
	_ = raw.Read(func(set uintptr) bool { // an error means that the deadline expired
		n, err := unix.EpollWait(int(set), ev[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
