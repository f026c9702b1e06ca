package shmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// EventFD is an event flag of this process. Its descriptor must not be passed to other
// processes: see WakePipe.
//
// Concurrency: Signal and Drain from any goroutine; neither blocks.
type EventFD struct {
	fd *handle
}

// NewEventFD returns an event that is not signalled.
func NewEventFD() (*EventFD, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err == unix.ENOSYS || err == unix.EPERM {
		return nil, unsupported("eventfd", err)
	}
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &EventFD{fd: newHandle(fd)}, nil
}

// Signal signals the event. Signalling it again is no error. Cost: one system call, about
// 0.2 us, without the Go scheduler.
func (e *EventFD) Signal() error {
	fd, err := e.fd.open("signal")
	if err != nil {
		return err
	}
	for {
		switch errno := rawSignal(fd); errno {
		case 0, unix.EAGAIN: // full: it is signalled already
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("signal: %w", errno)
		}
	}
}

// Drain resets the event and reports whether it was signalled.
func (e *EventFD) Drain() bool {
	fd := e.fd.num()
	return fd >= 0 && rawDrain(fd)
}

// FD returns the descriptor to wait on; -1 after Close.
func (e *EventFD) FD() int { return e.fd.num() }

// Close closes the descriptor. Idempotent.
func (e *EventFD) Close() error { return e.fd.close() }
