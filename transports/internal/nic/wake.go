package nic

import (
	"errors"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// raised is a descriptor that is always readable, of all Wakes in the process, there
// while there are any.
var raised struct {
	sync.Mutex
	users int
	event *shmem.EventFD
}

func useRaised() (*shmem.EventFD, error) {
	raised.Lock()
	defer raised.Unlock()
	if raised.event == nil {
		e, err := shmem.NewEventFD()
		if err != nil {
			return nil, err
		}
		if err := e.Signal(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		raised.event = e
	}
	raised.users++
	return raised.event, nil
}

func dropRaised() error {
	raised.Lock()
	defer raised.Unlock()
	if raised.users--; raised.users > 0 {
		return nil
	}
	e := raised.event
	raised.event = nil
	return e.Close()
}

// Wake is what a worker sleeps on: a descriptor that is readable while another one
// is, and from Raise to Lower.
//
// Concurrency: one goroutine at a time.
type Wake struct {
	fd     int
	epoll  *shmem.Epoll   // nil where the system has none: fd itself, and Raise does nothing
	event  *shmem.EventFD // the process's that is always readable; watched while raised
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
	if w.event, err = useRaised(); err == nil {
		err = errors.Join(w.epoll.Add(w.event.FD(), 0, 0), w.epoll.Add(fd, 0, shmem.EventIn))
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
		_ = w.epoll.Rearm(w.event.FD(), 0, shmem.EventIn) // it is in the set: nothing to fail
	}
}

// Raised reports whether it has been raised and not lowered.
func (w *Wake) Raised() bool { return w.raised }

// Lower ends Raise.
func (w *Wake) Lower() {
	if w.raised {
		w.raised = false
		_ = w.epoll.Rearm(w.event.FD(), 0, 0)
	}
}

// Close gives both descriptors back.
func (w *Wake) Close() (err error) {
	if w.epoll != nil {
		err = w.epoll.Close()
	}
	if w.event != nil {
		err = errors.Join(err, dropRaised())
		w.event = nil
	}
	return err
}
