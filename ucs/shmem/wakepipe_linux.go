package shmem

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// WakePipe is a pipe that wakes its owner. Peers that received Share write a byte to it.
//
// O_NONBLOCK belongs to the open file description, which all processes with a passed
// descriptor share. Each of them can clear it; then a write to a full pipe or a read of an
// empty one would block the others. So each side opens the pipe again through
// /proc/self/fd, and reads and writes on a description of its own. (An eventfd cannot be
// opened again.)
//
// Concurrency: Signal and Drain from any goroutine; neither blocks.
type WakePipe struct {
	r      *handle
	w      *WakeWriter
	shared *handle // passed to peers; this process never reads or writes it
}

// WakeWriter is the writing side of a WakePipe.
//
// Concurrency: Signal from any goroutine; it does not block.
type WakeWriter struct {
	w *handle // nil: the owner has closed its end
}

// NewWakePipe returns an empty pipe.
//
// Errors: ucs.ErrUnsupported if /proc is not mounted; else the system's.
func NewWakePipe() (*WakePipe, error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("wake pipe: %w", err)
	}
	p := &WakePipe{r: newHandle(fds[0]), shared: newHandle(fds[1])}
	w, err := openWriter(fds[1])
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wake pipe: %w", err), p.r.close(), p.shared.close())
	}
	p.w = &WakeWriter{w: newHandle(w)}
	return p, nil
}

// OpenWakeWriter opens the pipe behind the descriptor that a peer passed. It returns an
// error if fd is not a pipe: a write to it could block.
//
// Ownership: it closes fd on success. On error fd stays with the caller.
func OpenWakeWriter(fd int) (*WakeWriter, error) {
	w, err := openWriter(fd)
	switch {
	case err == unix.ENXIO: // the pipe has no reader
		CloseFDs(fd)
		return &WakeWriter{}, nil
	case err != nil:
		return nil, err
	}
	CloseFDs(fd)
	return &WakeWriter{w: newHandle(w)}, nil
}

// openWriter opens the pipe of descriptor fd again, for writing.
func openWriter(fd int) (int, error) {
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	kind, err := os.Readlink(name) // unlike fstat it involves no file system
	switch {
	case err != nil && fd >= 0 && errors.Is(err, os.ErrNotExist):
		return -1, unsupported("reopen a pipe", err)
	case err != nil:
		return -1, fmt.Errorf("reopen a pipe: %w", err)
	case !strings.HasPrefix(kind, "pipe:["):
		return -1, fmt.Errorf("open %s as a pipe: %w", kind, unix.ENOTTY)
	}
	w := -1
	err = retry(func() (e error) {
		w, e = unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		return e
	})
	if err == unix.ENXIO {
		return -1, err
	}
	if err != nil {
		return -1, fmt.Errorf("reopen %s: %w", kind, err)
	}
	return w, nil
}

// Signal makes the pipe readable. It is no error if the pipe is readable already or has no
// reader. Cost: one system call, without the Go scheduler.
func (w *WakeWriter) Signal() error {
	if w.w == nil {
		return nil
	}
	fd, err := w.w.open("signal")
	if err != nil {
		return err
	}
	for {
		switch errno := rawWriteByte(fd); errno {
		case 0, unix.EAGAIN, unix.EPIPE: // EAGAIN: full, so readable
			return nil
		case unix.EINTR:
		default:
			return fmt.Errorf("signal: %w", errno)
		}
	}
}

// Close closes the descriptor. Idempotent.
func (w *WakeWriter) Close() error {
	if w.w == nil {
		return nil
	}
	return w.w.close()
}

// Signal makes the pipe readable from the owner's side.
func (p *WakePipe) Signal() error { return p.w.Signal() }

// drainReads is the maximum number of reads in a Drain: as many as a full pipe of 64 KB
// needs. It bounds Drain while a peer writes continuously.
const drainReads = 128

// Drain empties the pipe and reports whether it was readable.
func (p *WakePipe) Drain() (was bool) {
	fd := p.r.num()
	for range drainReads {
		n := rawRead(fd)
		if n <= 0 {
			break
		}
		was = true
		if n < rawReadLen {
			break
		}
	}
	return was
}

// FD returns the descriptor to wait on; -1 after Close.
func (p *WakePipe) FD() int { return p.r.num() }

// Share returns the descriptor to pass to peers, which open it with OpenWakeWriter; -1
// after Close.
func (p *WakePipe) Share() int { return p.shared.num() }

// Close closes the pipe. Idempotent.
func (p *WakePipe) Close() error { return errors.Join(p.r.close(), p.w.Close(), p.shared.close()) }
