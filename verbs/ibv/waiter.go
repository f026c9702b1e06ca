//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// waiter waits in the runtime's network poller for a descriptor that belongs to libibverbs. It
// polls a duplicate, which it closes itself.
//
// Concurrency: any goroutine. One of them waits in the poller, the others for their turn.
type waiter struct {
	file   *os.File
	turn   chan struct{} // holds a value while a goroutine waits in the poller
	closed chan struct{}
}

// init makes fd non-blocking, for libibverbs too.
func (w *waiter) init(fd int) error {
	if no := syscall.Errno(C.goucx_nonblock(C.int(fd))); no != 0 {
		return fault(no)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return fault(err)
	}
	w.file = os.NewFile(uintptr(dup), "verbs events")
	w.turn, w.closed = make(chan struct{}, 1), make(chan struct{})
	return nil
}

// until calls take until it returns true: now, and each time the descriptor is readable.
func (w *waiter) until(ctx context.Context, take func() bool) error {
	if take() {
		return nil
	}
	select {
	case w.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-w.closed:
		return ucs.ErrClosed
	}
	defer func() { <-w.turn }()
	stop := context.AfterFunc(ctx, func() { _ = w.file.SetReadDeadline(time.Unix(1, 0)) }) // fails only after close
	defer func() {
		stop()
		_ = w.file.SetReadDeadline(time.Time{})
	}()
	c, err := w.file.SyscallConn()
	if err != nil {
		return ucs.ErrClosed
	}
	for {
		err = c.Read(func(uintptr) bool { return take() })
		switch {
		case err == nil:
			return nil
		case errors.Is(err, os.ErrClosed):
			return ucs.ErrClosed
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("wait for the descriptor: %w", err)
		}
		// The deadline is that of ctx, or a late one of the goroutine before. The order matters: a deadline
		// that ctx sets after the check stays.
		_ = w.file.SetReadDeadline(time.Time{})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// close ends all waits.
func (w *waiter) close() error {
	close(w.closed)
	return w.file.Close()
}
