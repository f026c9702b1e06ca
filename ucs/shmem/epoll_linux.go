package shmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// What a descriptor is watched for and found ready for. EventErr and EventHup
// are always reported. EventEdge tells of each change once; EventOneShot tells
// once and then not until Rearm.
const (
	EventIn      = uint32(unix.EPOLLIN)
	EventOut     = uint32(unix.EPOLLOUT)
	EventErr     = uint32(unix.EPOLLERR)
	EventHup     = uint32(unix.EPOLLHUP)
	EventRDHup   = uint32(unix.EPOLLRDHUP)
	EventEdge    = uint32(unix.EPOLLET)
	EventOneShot = uint32(unix.EPOLLONESHOT)
)

// maxEvents bounds one Wait, so that its buffer lies on the stack.
const maxEvents = 64

// Event says which descriptor (by the Data given to Add) is ready for what.
type Event struct {
	Data   uint64
	Events uint32
}

// Epoll watches many descriptors through one.
//
// Concurrency: all methods but Close from any goroutine.
type Epoll struct {
	fd *handle
}

// NewEpoll makes an empty set.
func NewEpoll() (*Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	return &Epoll{fd: newHandle(fd)}, nil
}

// Add watches fd for events; data comes back with each of them. The system
// refuses a descriptor that is in the set already (EEXIST).
func (e *Epoll) Add(fd int, data uint64, events uint32) error {
	return e.control("epoll add", unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: events, Fd: int32(data), Pad: int32(data >> 32),
	})
}

// Rearm changes what fd, which is in the set, is watched for. If it is ready,
// that is told anew.
func (e *Epoll) Rearm(fd int, data uint64, events uint32) error {
	return e.control("epoll rearm", unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{
		Events: events, Fd: int32(data), Pad: int32(data >> 32),
	})
}

// Del stops watching fd. Do it before closing fd: events of a descriptor that
// lives on elsewhere (it was passed) would keep coming.
func (e *Epoll) Del(fd int) error {
	return e.control("epoll del", unix.EPOLL_CTL_DEL, fd, nil)
}

func (e *Epoll) control(op string, code, fd int, ev *unix.EpollEvent) error {
	ep, err := e.fd.open(op)
	if err != nil {
		return err
	}
	if err := unix.EpollCtl(ep, code, fd, ev); err != nil {
		return fmt.Errorf("%s descriptor %d: %w", op, fd, err)
	}
	return nil
}

// Wait fills buf with ready descriptors, at most 64, and returns how many.
// timeoutMS 0 only looks (no scheduler work, about 0.2 us), negative waits
// without end; waiting holds an operating-system thread. A signal may end the
// wait early with 0.
func (e *Epoll) Wait(buf []Event, timeoutMS int) (int, error) {
	ep, err := e.fd.open("epoll wait")
	if err != nil {
		return 0, err
	}
	var raw [maxEvents]unix.EpollEvent
	room := raw[:min(len(buf), maxEvents)]
	var n int
	if timeoutMS == 0 {
		n, err = rawEpollLook(ep, room)
	} else {
		n, err = unix.EpollWait(ep, room, timeoutMS)
	}
	if err == unix.EINTR {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("epoll wait: %w", err)
	}
	for i := range n {
		buf[i] = Event{Data: uint64(uint32(raw[i].Fd)) | uint64(uint32(raw[i].Pad))<<32, Events: raw[i].Events}
	}
	return n, nil
}

// FD is readable whenever a watched descriptor is ready; -1 after Close.
func (e *Epoll) FD() int { return e.fd.num() }

// Close forgets the set; the watched descriptors stay open. Idempotent.
func (e *Epoll) Close() error { return e.fd.close() }
