package shmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxCopy keeps one call below the kernel's limit (MAX_RW_COUNT).
const maxCopy = 1 << 30

// ProcessRead copies len(dst) bytes from address remote of process pid. It
// returns how many arrived; less than len(dst) only with an error.
//
// Errors: ucs.ErrUnsupported where the call does not exist; else the system's
// (EPERM: not allowed, by user or by container; ESRCH: no such process; EFAULT:
// not mapped there).
func ProcessRead(pid int, dst []byte, remote uintptr) (int, error) {
	done := 0
	for done < len(dst) {
		local, there := pieces(dst[done:], remote+uintptr(done))
		n, err := unix.ProcessVMReadv(pid, local[:], there[:], 0)
		if n <= 0 {
			return done, copyError("process_vm_readv", pid, there[0].Base, err)
		}
		done += n
	}
	return done, nil
}

// ProcessWrite copies src to address remote of process pid. Result and errors
// as ProcessRead's.
func ProcessWrite(pid int, src []byte, remote uintptr) (int, error) {
	done := 0
	for done < len(src) {
		local, there := pieces(src[done:], remote+uintptr(done))
		n, err := unix.ProcessVMWritev(pid, local[:], there[:], 0)
		if n <= 0 {
			return done, copyError("process_vm_writev", pid, there[0].Base, err)
		}
		done += n
	}
	return done, nil
}

func pieces(b []byte, remote uintptr) (local [1]unix.Iovec, there [1]unix.RemoteIovec) {
	n := min(len(b), maxCopy)
	local[0].Base = &b[0]
	local[0].SetLen(n)
	there[0] = unix.RemoteIovec{Base: remote, Len: n}
	return local, there
}

func copyError(op string, pid int, at uintptr, err error) error {
	if err == nil { // nothing copied and no reason given: do not spin on it
		err = unix.EFAULT
	}
	if err == unix.ENOSYS {
		return unsupported(op, err)
	}
	return fmt.Errorf("%s process %d at %#x: %w", op, pid, at, err)
}
