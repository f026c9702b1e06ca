package nic

import (
	"errors"
	"sync"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// alwaysReady is a descriptor that is always readable. All Wakes of the process share it; it exists
// while there are any.
var alwaysReady struct {
	sync.Mutex
	users int
	event *shmem.EventFD
}

func acquireAlwaysReady() (*shmem.EventFD, error) {
	alwaysReady.Lock()
	defer alwaysReady.Unlock()
	if alwaysReady.event == nil {
		e, err := shmem.NewEventFD()
		if err != nil {
			return nil, err
		}
		if err := e.Signal(); err != nil {
			return nil, errors.Join(err, e.Close())
		}
		alwaysReady.event = e
	}
	alwaysReady.users++
	return alwaysReady.event, nil
}

func releaseAlwaysReady() error {
	alwaysReady.Lock()
	defer alwaysReady.Unlock()
	if alwaysReady.users--; alwaysReady.users > 0 {
		return nil
	}
	e := alwaysReady.event
	alwaysReady.event = nil
	return e.Close()
}

// Wake is the descriptor that a worker sleeps on. It is readable while another descriptor is,
// and between Raise and Lower.
//
// Concurrency: one goroutine at a time.
type Wake struct {
	fd     int
	epoll  *shmem.Epoll   // nil on systems without epoll: FD returns fd, and Raise does nothing
	event  *shmem.EventFD // the shared descriptor that is always readable; in the set while raised
	raised bool
}

// NewWake returns a Wake for the descriptor fd. The caller closes fd after it.
func NewWake(fd int) (*Wake, error) {
	w := &Wake{fd: fd}
	var err error
	if w.epoll, err = shmem.NewEpoll(); err != nil {
		if errors.Is(err, ucs.ErrUnsupported) {
			return &Wake{fd: fd}, nil
		}
		return nil, err
	}
	if w.event, err = acquireAlwaysReady(); err == nil {
		err = errors.Join(w.epoll.Add(w.event.FD(), 0, 0), w.epoll.Add(fd, 0, shmem.EventIn))
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// FD returns the descriptor to sleep on.
func (w *Wake) FD() int {
	if w.epoll == nil {
		return w.fd
	}
	return w.epoll.FD()
}

// Raise makes the descriptor readable.
func (w *Wake) Raise() {
	if !w.raised && w.event != nil {
		w.raised = true
		_ = w.epoll.Rearm(w.event.FD(), 0, shmem.EventIn) // cannot fail: event is in the set
	}
}

// Raised reports whether Raise was called after the last Lower.
func (w *Wake) Raised() bool { return w.raised }

// Lower undoes Raise.
func (w *Wake) Lower() {
	if w.raised {
		w.raised = false
		_ = w.epoll.Rearm(w.event.FD(), 0, 0)
	}
}

// Close closes the epoll descriptor and releases the shared one.
func (w *Wake) Close() (err error) {
	if w.epoll != nil {
		err = w.epoll.Close()
	}
	if w.event != nil {
		err = errors.Join(err, releaseAlwaysReady())
		w.event = nil
	}
	return err
}
