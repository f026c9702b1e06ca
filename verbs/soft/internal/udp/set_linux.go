package udp

import (
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Set is a set of sockets of which Ready finds those that have datagrams, by one system call
// however many sockets there are.
//
// Concurrency: Ready is called by the holder of the receive token. All other methods are
// called by one goroutine at a time, also during Ready.
type Set struct {
	fd int // epoll
	// sockets are found by the data of their events; nil: removed. A change replaces the slice.
	sockets atomic.Pointer[[]*Socket]
	events  [maxReady]unix.EpollEvent
	ready   [maxReady]*Socket
}

// maxReady is the most sockets that one call of Ready returns.
const maxReady = 8

// NewSet returns an empty set.
func NewSet() (*Set, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create epoll set: %w", explainJoin(err))
	}
	s := &Set{fd: fd}
	s.sockets.Store(new([]*Socket))
	return s, nil
}

// Close ends the set. The sockets stay open.
func (s *Set) Close() error { return unix.Close(s.fd) }

// Add adds a socket.
func (s *Set) Add(u *Socket) error {
	all := slices.Clone(*s.sockets.Load())
	i := slices.Index(all, nil)
	if i < 0 {
		i, all = len(all), append(all, nil)
	}
	all[i] = u
	s.sockets.Store(&all)
	if err := unix.EpollCtl(s.fd, unix.EPOLL_CTL_ADD, u.FD, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)}); err != nil {
		s.Remove(u)
		return fmt.Errorf("add to epoll set: %w", err)
	}
	return nil
}

// Remove removes a socket. The present call of Ready may still return it.
func (s *Set) Remove(u *Socket) {
	_ = unix.EpollCtl(s.fd, unix.EPOLL_CTL_DEL, u.FD, nil) // fails only if it was not added
	all := slices.Clone(*s.sockets.Load())
	all[slices.Index(all, u)] = nil
	s.sockets.Store(&all)
}

// All returns the sockets.
func (s *Set) All() []*Socket {
	return slices.DeleteFunc(slices.Clone(*s.sockets.Load()), func(u *Socket) bool { return u == nil })
}

// Ready returns sockets that have datagrams: those that it has not returned for the longest
// time, if there are many. The slice is valid until the next call.
func (s *Set) Ready() []*Socket {
	n := 0
	k := rawEpollWait(s.fd, s.events[:])
	all := *s.sockets.Load()
	for _, e := range s.events[:k] {
		if u := all[e.Fd]; u != nil {
			s.ready[n] = u
			n++
		}
	}
	return s.ready[:n]
}
