package shmem

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// WakePipe is a pipe that wakes its owner: peers that got Share write a byte to it.
//
// O_NONBLOCK belongs to the open file description, which a process and everybody to whom
// it passed the descriptor have in common: each of them can clear it, and the next write
// to a full pipe or read of an empty one blocks the others. So every side opens the pipe
// anew through /proc/self/fd, and reads and writes by a description of its own. (An
// eventfd cannot be opened anew.)
//
// Concurrency: Signal and Drain from any goroutine; neither blocks.
type WakePipe struct {
	r      *handle
	w      *WakeWriter
	shared *handle // for peers; never read or written here
}

// WakeWriter is the writing side of a WakePipe.
//
// Concurrency: Signal from any goroutine; it does not block.
type WakeWriter struct {
	w *handle // nil: the owner is gone
}

// NewWakePipe makes an empty pipe.
//
// Errors: ucs.ErrUnsupported where /proc is not mounted; else the system's.
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

// OpenWakeWriter takes the descriptor that a peer passed. Anything that is not a pipe is
// refused: a write to it could block.
//
// Ownership: fd is closed on success; on error it stays the caller's.
func OpenWakeWriter(fd int) (*WakeWriter, error) {
	w, err := openWriter(fd)
	switch {
	case err == unix.ENXIO: // nobody reads it any more
		CloseFDs(fd)
		return &WakeWriter{}, nil
	case err != nil:
		return nil, err
	}
	CloseFDs(fd)
	return &WakeWriter{w: newHandle(w)}, nil
}

// openWriter opens the pipe of descriptor fd anew.
func openWriter(fd int) (int, error) {
	name := fmt.Sprintf("/proc/self/fd/%d", fd)
	kind, err := os.Readlink(name) // asks no file system, as fstat would
	switch {
	case err != nil && fd >= 0 && errors.Is(err, os.ErrNotExist):
		return -1, unsupported("open a pipe anew", err)
	case err != nil:
		return -1, fmt.Errorf("open a pipe anew: %w", err)
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
		return -1, fmt.Errorf("open %s anew: %w", kind, err)
	}
	return w, nil
}

// Signal makes the pipe readable; readable already is no error, nor is a reader that is
// gone. Cost: one system call, without the Go scheduler.
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
		case 0, unix.EAGAIN, unix.EPIPE: // EAGAIN: full, and so readable
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

// Signal makes the pipe readable, as a peer does.
func (p *WakePipe) Signal() error { return p.w.Signal() }

// drainReads bounds the reads of a Drain, for a peer that writes without end: as many as
// a full pipe of 64 KB takes.
const drainReads = 128

// Drain empties the pipe and reports whether it was readable.
func (p *WakePipe) Drain() (was bool) {
	fd := p.r.num()
	for range drainReads {
		n := rawReadSome(fd)
		if n <= 0 {
			break
		}
		was = true
		if n < readSome {
			break
		}
	}
	return was
}

// FD is the descriptor to wait on; -1 after Close.
func (p *WakePipe) FD() int { return p.r.num() }

// Share is the descriptor to pass to peers, which open it by OpenWakeWriter; -1 after
// Close.
func (p *WakePipe) Share() int { return p.shared.num() }

// Close closes the pipe. Idempotent.
func (p *WakePipe) Close() error { return errors.Join(p.r.close(), p.w.Close(), p.shared.close()) }
