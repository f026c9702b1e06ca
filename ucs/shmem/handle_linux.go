package shmem

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// handle owns one descriptor. Forgetting to close it leaks until the handle is
// collected; Close is the contract, the cleanup only a net.
type handle struct {
	fd  atomic.Int64 // -1: closed or given away
	net runtime.Cleanup
}

func newHandle(fd int) *handle {
	h := new(handle)
	h.fd.Store(int64(fd))
	h.net = runtime.AddCleanup(h, func(fd int) { _ = unix.Close(fd) }, fd)
	return h
}

// num gives the descriptor's number, or -1 once closed.
func (h *handle) num() int { return int(h.fd.Load()) }

// open gives the descriptor's number, or ErrClosed naming the operation.
func (h *handle) open(op string) (int, error) {
	fd := h.num()
	if fd < 0 {
		return -1, fmt.Errorf("%s: %w", op, ucs.ErrClosed)
	}
	return fd, nil
}

// close closes the descriptor once; later calls do nothing.
func (h *handle) close() error {
	fd := int(h.fd.Swap(-1))
	if fd < 0 {
		return nil
	}
	h.net.Stop()
	runtime.KeepAlive(h) // else the net may be sprung while it is taken down, and close another's descriptor
	return unix.Close(fd)
}

// retry repeats a system call that a signal interrupted before it did anything.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// CloseFDs closes descriptors that Recv handed over and nobody took; errors are
// of no use to the caller and dropped.
func CloseFDs(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
