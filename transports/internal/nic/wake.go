package nic

import (
	"errors"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// Wake is what a worker sleeps on: a descriptor that is readable while another one
// is, and from Raise to Lower.
//
// Concurrency: one goroutine at a time.
type Wake struct {
	fd     int
	epoll  *shmem.Epoll // nil where the system has none: fd itself, and Raise does nothing
	event  *shmem.EventFD
	raised bool
}

// NewWake makes one for the descriptor fd, which stays the caller's and is closed
// after it.
func NewWake(fd int) (*Wake, error) {
	w := &Wake{fd: fd}
	var err error
	if w.epoll, err = shmem.NewEpoll(); err != nil {
		if errors.Is(err, ucs.ErrUnsupported) {
			return &Wake{fd: fd}, nil
		}
		return nil, err
	}
	if w.event, err = shmem.NewEventFD(); err == nil {
		err = errors.Join(w.epoll.Add(w.event.FD(), 0, shmem.EventIn), w.epoll.Add(fd, 0, shmem.EventIn))
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// FD is the descriptor to sleep on.
func (w *Wake) FD() int {
	if w.epoll == nil {
		return w.fd
	}
	return w.epoll.FD()
}

// Raise makes it readable.
func (w *Wake) Raise() {
	if !w.raised && w.event != nil {
		w.raised = true
		_ = w.event.Signal() // of our own, open
	}
}

// Raised reports whether it has been raised and not lowered.
func (w *Wake) Raised() bool { return w.raised }

// Lower ends Raise.
func (w *Wake) Lower() {
	if w.raised {
		w.raised = false
		w.event.Drain()
	}
}

// Close gives both descriptors back.
func (w *Wake) Close() (err error) {
	if w.event != nil {
		err = w.event.Close()
	}
	if w.epoll != nil {
		err = errors.Join(err, w.epoll.Close())
	}
	return err
}
