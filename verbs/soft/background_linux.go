package soft

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// bed is where the background goroutine of a UDP device sleeps: an epoll set in
// the runtime's poller. The socket is in it during the sleep only. One that is
// always in it costs the sender of each packet a tenth of the way.
type bed struct {
	file   *os.File // the set
	set    int      // its descriptor
	socket int
}

func (u *udpPort) bed() (*bed, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make epoll set: %w", err)
	}
	if err := unix.SetNonblock(set, true); err != nil { // else the runtime does not poll it
		_ = unix.Close(set)
		return nil, fmt.Errorf("set epoll set non-blocking: %w", err)
	}
	return &bed{os.NewFile(uintptr(set), "soft device"), set, u.fd}, nil
}

// enter puts the socket in.
func (b *bed) enter() error {
	return unix.EpollCtl(b.set, unix.EPOLL_CTL_ADD, b.socket, &unix.EpollEvent{Events: unix.EPOLLIN})
}

// leave takes it out.
func (b *bed) leave() { _ = unix.EpollCtl(b.set, unix.EPOLL_CTL_DEL, b.socket, nil) }

// alarm has lie end after that time; negative: never. It ends what wakeUp did.
func (b *bed) alarm(limit time.Duration) {
	at := time.Time{}
	if limit >= 0 {
		at = time.Now().Add(limit) //nolint:forbidigo // the runtime's poller counts by it
	}
	_ = b.file.SetReadDeadline(at) // an open descriptor in the poller takes any
}

// lie waits until something came, the alarm, or wakeUp.
func (b *bed) lie() {
	raw, err := b.file.SyscallConn()
	if err != nil {
		return
	}
	var ev [1]unix.EpollEvent
	_ = raw.Read(func(set uintptr) bool { // an error is the alarm
		n, err := unix.EpollWait(int(set), ev[:], 0)
		return n > 0 || err != nil && err != unix.EINTR
	})
}
