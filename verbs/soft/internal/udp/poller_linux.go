package udp

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Poller is the poller in which the background goroutine of a device sleeps: an epoll set
// that is registered with the runtime's poller. It contains the sockets during the sleep
// only. A socket that stays in a set makes each packet sent to it a tenth more expensive.
type Poller struct {
	file    *os.File // the epoll set
	set     int      // its descriptor
	sockets []int
}

// NewPoller returns a poller for the sockets.
func NewPoller(sockets []*Socket) (*Poller, error) {
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll set: %w", err)
	}
	if err := unix.SetNonblock(set, true); err != nil { // the runtime polls non-blocking descriptors only
		_ = unix.Close(set)
		return nil, fmt.Errorf("set epoll set non-blocking: %w", err)
	}
	p := &Poller{file: os.NewFile(uintptr(set), "soft device"), set: set}
	for _, u := range sockets {
		p.sockets = append(p.sockets, u.FD)
	}
	return p, nil
}

// Close ends the poller.
func (p *Poller) Close() error { return p.file.Close() }

// Arm adds the sockets to the set and sets the time after which Wait returns; negative:
// none. Disarm must follow. Arm undoes the effect of an earlier Wake.
func (p *Poller) Arm(limit time.Duration) error {
	at := time.Time{}
	if limit >= 0 {
		at = time.Now().Add(limit) //nolint:forbidigo // the runtime's poller counts by it
	}
	_ = p.file.SetReadDeadline(at) // never fails: the descriptor is open and in the runtime's poller
	for _, fd := range p.sockets {
		if err := unix.EpollCtl(p.set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN}); err != nil {
			p.Disarm() // those before it
			return err
		}
	}
	return nil
}

// Disarm removes the sockets from the set.
func (p *Poller) Disarm() {
	for _, fd := range p.sockets {
		_ = unix.EpollCtl(p.set, unix.EPOLL_CTL_DEL, fd, nil)
	}
}

// Wake ends the present Wait, or the next one before Arm.
func (p *Poller) Wake() { _ = p.file.SetReadDeadline(time.Unix(1, 0)) }

// Wait waits until a socket is readable, the deadline expires, or Wake is called.
func (p *Poller) Wait() {
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
