package shm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
	"github.com/goucx/goucx/uct"
)

// cmaRegion is a region in another process's private memory. The kernel copies from and
// to it (cross-memory attach). Each access is counted in the region's slot, so that the
// owner's Close can wait for it.
type cmaRegion struct {
	pid  int
	conn *shmem.Conn // the remote's conn; it hangs up when the owner exits or executes another program
	slot *mapped.Slot
	gen  uint64
}

var _ mapped.Copier = (*cmaRegion)(nil)

// newCMALocked returns an accessor for region p, after a trial read.
func (r *remote) newCMALocked(p *mapped.PackedKey, slot *mapped.Slot, grant *keyGrant) (*cmaRegion, error) {
	conn := r.conn
	if conn == nil {
		conn = grant.conn
	}
	f := &cmaRegion{pid: grant.pid, conn: conn, slot: slot, gen: p.Gen}
	if err := f.try(p.Base); err != nil {
		return nil, err
	}
	if r.conn == nil {
		r.conn, grant.conn = conn, nil
	}
	r.cmaRegions++
	return f, nil
}

// try reads one byte to find out whether the system permits the access.
func (f *cmaRegion) try(addr uint64) error {
	const advice = "have the owner allocate the memory instead of registering its own"
	if f.pid <= 0 {
		return fmt.Errorf("process_vm_readv: the owner is in another pid namespace; %s: %w", advice, ucs.ErrUnsupported)
	}
	if !f.slot.Enter(f.gen) {
		return keyStatusErrs[keyRevoked]
	}
	defer f.slot.Leave()
	var b [1]byte
	_, err := shmem.ProcessRead(f.pid, b[:], uintptr(addr))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%w: forbidden here (ptrace scope, seccomp or user namespace); %s: %w", err, advice, ucs.ErrUnsupported)
	}
	return err
}

// Read: see mapped.Copier.
func (f *cmaRegion) Read(p []byte, addr uint64) uct.Status {
	return f.copy(p, addr, shmem.ProcessRead)
}

// Write: see mapped.Copier.
func (f *cmaRegion) Write(p []byte, addr uint64) uct.Status {
	return f.copy(p, addr, shmem.ProcessWrite)
}

func (f *cmaRegion) copy(p []byte, addr uint64, do func(int, []byte, uintptr) (int, error)) uct.Status {
	if !f.slot.Enter(f.gen) {
		return ucs.RemoteAccess
	}
	st := ucs.PeerFailed
	if f.alive() {
		_, err := do(f.pid, p, uintptr(addr))
		st = cmaStatus(err)
	}
	f.slot.Leave()
	return st
}

// alive reports whether the owner still runs, so that its process id is not reused yet.
// The owner may exit right after the check. Reuse of its id between the check and the
// copy is considered impossible.
func (f *cmaRegion) alive() bool {
	fds := [1]unix.PollFd{{Fd: int32(f.conn.FD()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds[:], 0)
		if err == unix.EINTR {
			continue
		}
		return err == nil && n == 0 // the owner sends nothing unrequested: any event is its end
	}
}

func cmaStatus(err error) uct.Status {
	switch {
	case err == nil:
		return ucs.OK
	case errors.Is(err, unix.ESRCH):
		return ucs.PeerFailed
	case errors.Is(err, unix.EFAULT):
		return ucs.RemoteAccess
	case errors.Is(err, unix.ENOMEM):
		return ucs.NoMemory
	}
	return ucs.Unsupported
}
