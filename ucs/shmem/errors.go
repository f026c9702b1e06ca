package shmem

import (
	"errors"
	"fmt"

	"github.com/goucx/goucx/ucs"
)

// Errors of this package; compare with errors.Is. System errors stay visible
// through errors.Is on syscall.Errno.
var (
	// ErrWouldBlock: nothing to do at the moment; wait on the descriptor (or
	// for Dial: try again later) and repeat.
	ErrWouldBlock = errors.New("would block")
	// ErrSize: a segment's size is not positive, too large, or not the one
	// that was announced.
	ErrSize = errors.New("segment size")
	// ErrUnsealed: a segment could still shrink, grow or change its seals, so
	// touching it could end the process with SIGBUS.
	ErrUnsealed = errors.New("segment not sealed")
	// ErrBacking: a segment is not backed by memory.
	ErrBacking = errors.New("segment not backed by memory")
	// ErrDescriptors: a message carried more descriptors than MaxFDs, or
	// control data other than descriptors.
	ErrDescriptors = errors.New("descriptors of a message")
)

// unsupported marks a system's refusal of a feature, keeping the system's own
// word visible.
func unsupported(op string, err error) error {
	return fmt.Errorf("%s: %w (%w)", op, ucs.ErrUnsupported, err)
}
