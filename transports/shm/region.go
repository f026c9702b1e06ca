package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// Register: see uct.Domain. Peers in this process access buf directly. Peers in other
// processes use the kernel's copy between processes, without atomics.
func (d *domain) Register(buf []byte, f uct.MemFlags) (uct.Mem, error) {
	d.exporterMu.Lock()
	defer d.exporterMu.Unlock()
	l, err := d.openExporter()
	if err != nil {
		return nil, fmt.Errorf("shm: register %d bytes: %w", len(buf), err)
	}
	r, err := l.Register(buf, f)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	return r, nil
}

// Allocate: see uct.Domain. The memory is a segment that peers map. Its pages are
// allocated now, so that no later access fails for lack of memory. With MemNoPin they
// are allocated at the first access.
func (d *domain) Allocate(n int, f uct.MemFlags) (uct.Mem, error) {
	seg, err := newSegment(n, f)
	if err != nil {
		return nil, fmt.Errorf("shm: allocate %d bytes: %w", n, err)
	}
	d.exporterMu.Lock()
	defer d.exporterMu.Unlock()
	l, err := d.openExporter()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: allocate %d bytes: %w", n, err), seg.Close())
	}
	r, err := l.Adopt(seg.Bytes(), seg.FD(), f, seg.Close)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("shm: %w", err), seg.Close())
	}
	return r, nil
}

// newSegment creates a segment of n bytes, populated unless f has MemNoPin.
func newSegment(n int, f uct.MemFlags) (*shmem.Segment, error) {
	if n <= 0 || n > domainAttr.MaxAllocate {
		return nil, ucs.ErrInvalid
	}
	seg, err := shmem.Create("goucx-mem", n)
	if err != nil {
		return nil, noMemory(err)
	}
	if f&uct.MemNoPin == 0 {
		if err := seg.Populate(); err != nil {
			return nil, errors.Join(noMemory(err), seg.Close())
		}
	}
	if f&uct.MemHuge != 0 {
		collapseHuge(seg.Bytes())
	}
	return seg, nil
}

// noMemory wraps ErrNoMemory around the system errors that mean a lack of memory.
func noMemory(err error) error {
	for _, e := range []error{unix.ENOMEM, unix.ENOSPC, unix.EFAULT} {
		if errors.Is(err, e) {
			return fmt.Errorf("%w: %w", ucs.ErrNoMemory, err)
		}
	}
	return err
}
