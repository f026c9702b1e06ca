package shmem

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// PollSet is a few descriptors that one goroutine waits for in poll(2). Unlike
// Go's netpoller this blocks the thread, which costs a third less until it runs
// again.
//
// Concurrency: one goroutine at a time.
type PollSet struct {
	fds []unix.PollFd
}

// NewPollSet makes a set; negative descriptors keep their place and are never
// ready. The descriptors stay the caller's.
func NewPollSet(fds ...int) *PollSet {
	p := &PollSet{fds: make([]unix.PollFd, len(fds))}
	for i, fd := range fds {
		p.fds[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	return p
}

// Wait blocks until one of the first n descriptors is readable, or until d has
// passed (negative: without end; the system adds up to 50 us). It gives the
// number of ready ones; a signal may end the wait early with 0.
func (p *PollSet) Wait(n int, d time.Duration) (int, error) {
	n = min(n, len(p.fds))
	var limit *unix.Timespec
	if d >= 0 {
		t := unix.NsecToTimespec(int64(d))
		limit = &t
	}
	ready, err := unix.Ppoll(p.fds[:n], limit, nil)
	if err == unix.EINTR {
		p.forget()
		return 0, nil
	}
	if err != nil {
		p.forget()
		return 0, fmt.Errorf("poll %d descriptors: %w", n, err)
	}
	return ready, nil
}

// Ready reports whether the last Wait found descriptor i readable.
func (p *PollSet) Ready(i int) bool { return p.fds[i].Revents != 0 }

func (p *PollSet) forget() {
	for i := range p.fds {
		p.fds[i].Revents = 0
	}
}
