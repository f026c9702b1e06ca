//go:build unix

package mapped

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// MapAnonymous maps n > 0 bytes of zeroed memory outside the Go heap, page-aligned and private
// to this process. Unmap frees it.
//
// Errors: ucs.ErrNoMemory, together with the system's error.
func MapAnonymous(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w (%w)", n, ucs.ErrNoMemory, err)
	}
	return b, nil
}

// Unmap unmaps memory that MapAnonymous returned. b must be all of it.
func Unmap(b []byte) error {
	if err := unix.Munmap(b); err != nil {
		return fmt.Errorf("unmap %d bytes: %w", len(b), err)
	}
	return nil
}
