package shmem

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Errors of this package; compare with errors.Is. System errors stay visible
// through errors.Is on syscall.Errno.
var (
	// ErrWouldBlock: the call would block. Wait for the descriptor and repeat; repeat
	// Dial later.
	ErrWouldBlock = errors.New("would block")
	// ErrSize: a segment's size is not positive, too large, or not the expected one.
	ErrSize = errors.New("segment size")
	// ErrUnsealed: a segment can still shrink, grow or change its seals. An access to it
	// could terminate the process with SIGBUS.
	ErrUnsealed = errors.New("segment not sealed")
	// ErrBacking: a segment is not backed by memory.
	ErrBacking = errors.New("segment not backed by memory")
	// ErrDescriptors: a message carried more descriptors than MaxFDs, or control data other than descriptors, or the
	// process has no room for its descriptors (ulimit -n).
	ErrDescriptors = errors.New("descriptors of a message")
)

// unsupported returns an error that wraps ErrUnsupported and the system's error.
func unsupported(op string, err error) error {
	return fmt.Errorf("%s: %w (%w)", op, ucs.ErrUnsupported, err)
}
