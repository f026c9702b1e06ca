package shmem

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
)

// seals are the seals that make a mapping safe to access: they fix the file's size and
// the seals themselves.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// pageSlack keeps a size within an int after it is rounded up to any page size.
const pageSlack = 1 << 30

// Segment is memory that several processes can map. Its size is fixed.
//
// Ownership: the Segment owns the mapping. Slices of Bytes are valid until Close. If a
// Segment is dropped without Close, garbage collection closes its descriptor. Its mapping
// stays, as slices of it may be in use.
type Segment struct {
	mem []byte
	fd  *handle
}

// Create creates a sealed segment of size bytes, zeroed and mapped. Its pages are
// allocated at the first access (see Populate). name appears in /proc/PID/maps and need
// not be unique.
//
// Errors: ErrSize; ErrUnsupported if memfd_create is forbidden; else the system's.
func Create(name string, size int) (*Segment, error) {
	if size <= 0 || size > math.MaxInt-pageSlack {
		return nil, fmt.Errorf("create segment %q of %d bytes: %w", name, size, ErrSize)
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == unix.ENOSYS || err == unix.EPERM {
		return nil, unsupported("memfd_create", err)
	}
	if err != nil {
		return nil, fmt.Errorf("create segment %q: %w", name, err)
	}
	s, err := sealAndMap(fd, size)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create segment %q of %d bytes: %w", name, size, err), unix.Close(fd))
	}
	return s, nil
}

func sealAndMap(fd, size int) (*Segment, error) {
	if err := retry(func() error { return unix.Ftruncate(fd, int64(size)) }); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, err
	}
	return mapFD(fd, size)
}

// Map maps a segment that another process created. Before any access it checks that the
// segment is sealed, lies in memory and has size bytes.
//
// Ownership: on success the segment owns fd. On error it stays with the caller.
//
// Errors: ErrSize, ErrBacking, ErrUnsealed, each with the value found; else the system's.
func Map(fd, size int) (*Segment, error) {
	if err := checkSegment(fd, size); err != nil {
		return nil, fmt.Errorf("map segment of %d bytes: %w", size, err)
	}
	s, err := mapFD(fd, size)
	if err != nil {
		return nil, fmt.Errorf("map segment of %d bytes: %w", size, err)
	}
	return s, nil
}

// checkSegment checks the seals first: only files in memory have them, and a call to another file
// system could block. It checks the size last: only the seals make it final.
func checkSegment(fd, size int) error {
	if size <= 0 {
		return ErrSize
	}
	got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err == unix.EINVAL {
		return fmt.Errorf("%w: it has no seals", ErrBacking)
	}
	if err != nil {
		return err
	}
	if got&seals != seals {
		return fmt.Errorf("%w: seals %#x, want %#x", ErrUnsealed, got, seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Size != int64(size) {
		return fmt.Errorf("%w: file has %d bytes", ErrSize, st.Size)
	}
	// An access that finds no free huge page is a SIGBUS. Where seccomp forbids the call, the peer is believed.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err == nil && fs.Type == unix.HUGETLBFS_MAGIC {
		return fmt.Errorf("%w: it has huge pages of a pool", ErrBacking)
	}
	return nil
}

func mapFD(fd, size int) (*Segment, error) {
	mem, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Segment{mem: mem, fd: newHandle(fd)}, nil
}

// Bytes returns the mapped memory, page-aligned; nil after Close.
func (s *Segment) Bytes() []byte { return s.mem }

// FD returns the descriptor to pass to another process; -1 after CloseFD or Close.
func (s *Segment) FD() int { return s.fd.num() }

// CloseFD closes the descriptor. The mapping stays.
func (s *Segment) CloseFD() error { return s.fd.close() }

// Populate allocates all pages, so that no later access faults. It changes no byte and may
// run concurrently with accesses by any process.
//
// Errors: ENOMEM for more than the host has, for which the kernel would kill the process.
func (s *Segment) Populate() error {
	if s.mem == nil {
		return fmt.Errorf("populate segment: %w", ucs.ErrClosed)
	}
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err == nil {
		if has := (host.Totalram + host.Totalswap) * uint64(host.Unit); uint64(len(s.mem)) > has {
			return fmt.Errorf("populate segment of %d bytes: %w: the host has %d", len(s.mem), unix.ENOMEM, has)
		}
	}
	err := retry(func() error { return unix.Madvise(s.mem, unix.MADV_POPULATE_WRITE) })
	switch err {
	case unix.EINVAL, unix.ENOSYS, unix.EPERM, unix.EACCES:
		// Before Linux 5.14, or in a sandbox that forbids it. A read allocates the page too.
		touch(s.mem)
		return nil
	}
	if err != nil {
		return fmt.Errorf("populate segment of %d bytes: %w", len(s.mem), err)
	}
	return nil
}

// touch reads a byte of each page. It returns the sum so that the compiler keeps the
// reads.
//
//go:noinline
func touch(mem []byte) (sum byte) { //nolint:unparam // see above
	for i := 0; i < len(mem); i += unix.Getpagesize() {
		sum += mem[i]
	}
	return sum
}

// Close unmaps the memory and closes the descriptor. Idempotent.
func (s *Segment) Close() error {
	mem := s.mem
	s.mem = nil
	var err error
	if mem != nil {
		err = unix.Munmap(mem)
	}
	return errors.Join(err, s.fd.close())
}
