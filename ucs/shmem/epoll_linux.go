package shmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Events to watch a descriptor for. The system reports errors and hang-ups in any case.
// EventEdge reports each change once. EventOneShot reports one event, and no other until
// Rearm.
const (
	EventIn      = uint32(unix.EPOLLIN)
	EventRDHup   = uint32(unix.EPOLLRDHUP)
	EventEdge    = uint32(unix.EPOLLET)
	EventOneShot = uint32(unix.EPOLLONESHOT)
)

// maxEvents is the maximum number of events of one Wait; its buffer lies on the stack.
const maxEvents = 64

// Event is a ready descriptor, identified by the data passed to Add, and its events.
type Event struct {
	Data   uint64
	Events uint32
}

// Epoll is a set of watched descriptors (epoll(7)).
//
// Concurrency: any goroutine, except for Close.
type Epoll struct {
	fd *handle
}

// NewEpoll returns an empty set.
func NewEpoll() (*Epoll, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	return &Epoll{fd: newHandle(fd)}, nil
}

// Add watches fd for events. Each reported Event carries data. The system returns EEXIST
// if fd is in the set already.
func (e *Epoll) Add(fd int, data uint64, events uint32) error {
	return e.control("epoll add", unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{
		Events: events, Fd: int32(data), Pad: int32(data >> 32),
	})
}

// Rearm changes the events that fd, which is in the set, is watched for. If fd is ready,
// that is reported again.
func (e *Epoll) Rearm(fd int, data uint64, events uint32) error {
	return e.control("epoll rearm", unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{
		Events: events, Fd: int32(data), Pad: int32(data >> 32),
	})
}

// Del stops watching fd. Call it before closing fd: if another process holds a copy of
// the descriptor, its events would continue.
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

// Wait stores ready descriptors in buf, at most maxEvents, and returns their number. It
// blocks for at most timeoutMS milliseconds, or without limit if that is negative, and
// then occupies a thread. With 0 it only polls: no scheduler work, about 0.2 us. A signal
// may end the wait early with 0.
func (e *Epoll) Wait(buf []Event, timeoutMS int) (int, error) {
	ep, err := e.fd.open("epoll wait")
	if err != nil {
		return 0, err
	}
	var raw [maxEvents]unix.EpollEvent
	room := raw[:min(len(buf), maxEvents)]
	var n int
	if timeoutMS == 0 {
		n, err = rawEpollPoll(ep, room)
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

// FD returns a descriptor that is readable while a watched descriptor is ready; -1 after
// Close.
func (e *Epoll) FD() int { return e.fd.num() }

// Close closes the set. The watched descriptors stay open. Idempotent.
func (e *Epoll) Close() error { return e.fd.close() }
