package udp

import (
	"fmt"
	"os"
	"sync"
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

	mu     sync.Mutex // guards the fields below
	armed  bool       // between Arm and Disarm
	groups *Set       // watched too; nil: none
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
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = true
	for _, fd := range p.sockets {
		if err := p.add(fd); err != nil {
			p.disarm() // those before it
			return err
		}
	}
	if p.groups == nil {
		return nil
	}
	err := p.add(p.groups.fd)
	if err != nil {
		p.disarm()
	}
	return err
}

// Disarm removes the sockets from the set.
func (p *Poller) Disarm() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.disarm()
}

func (p *Poller) disarm() {
	p.armed = false
	for _, fd := range p.sockets {
		p.remove(fd)
	}
	if p.groups != nil {
		p.remove(p.groups.fd)
	}
}

func (p *Poller) add(fd int) error {
	return unix.EpollCtl(p.set, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
}

func (p *Poller) remove(fd int) { _ = unix.EpollCtl(p.set, unix.EPOLL_CTL_DEL, fd, nil) }

// Watch makes the poller wait for the sockets of s too, in the present Wait as well, and no
// longer for those of an earlier set. nil: for none.
//
// Concurrency: any goroutine, also during Wait.
func (p *Poller) Watch(s *Set) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed && p.groups != nil {
		p.remove(p.groups.fd)
	}
	p.groups = s
	if !p.armed || s == nil {
		return nil
	}
	return p.add(s.fd)
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
