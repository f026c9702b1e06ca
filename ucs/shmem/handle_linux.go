package shmem

import (
	"fmt"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// handle owns a descriptor. The owner must call close. If a handle is dropped without
// close, a runtime cleanup closes its descriptor.
type handle struct {
	fd      atomic.Int64 // -1: closed
	cleanup runtime.Cleanup
}

func newHandle(fd int) *handle {
	h := new(handle)
	h.fd.Store(int64(fd))
	h.cleanup = runtime.AddCleanup(h, func(fd int) { _ = unix.Close(fd) }, fd)
	return h
}

// num returns the descriptor's number; -1 after close.
func (h *handle) num() int { return int(h.fd.Load()) }

// open returns the descriptor's number. After close it returns ErrClosed for operation op.
func (h *handle) open(op string) (int, error) {
	fd := h.num()
	if fd < 0 {
		return -1, fmt.Errorf("%s: %w", op, ucs.ErrClosed)
	}
	return fd, nil
}

// close closes the descriptor. Idempotent.
func (h *handle) close() error {
	fd := int(h.fd.Swap(-1))
	if fd < 0 {
		return nil
	}
	h.cleanup.Stop()
	runtime.KeepAlive(h) // otherwise the cleanup could run before Stop and close a reused descriptor number
	return unix.Close(fd)
}

// retry repeats a system call that a signal interrupted before it had any effect.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// CloseFDs closes descriptors that Recv returned and the caller does not use. It ignores
// errors.
func CloseFDs(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
