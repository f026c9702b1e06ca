package shmem

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// maxCopy keeps one call within the kernel's limit (MAX_RW_COUNT).
const maxCopy = 1 << 30

// The copies are raw calls without the scheduler's hooks: a call of 10 us or more would have the scheduler start another
// thread, which takes a processor from the peer. A copy ends in about 0.1 us per KB, unless it waits for a page.

// ProcessRead copies len(dst) bytes from address remote of process pid. It returns the
// number of bytes copied, which is less than len(dst) only with an error.
//
// Errors: ucs.ErrUnsupported if the system call does not exist; else the system's (EPERM:
// not permitted for this user or container; ESRCH: no such process; EFAULT: not mapped
// in that process).
func ProcessRead(pid int, dst []byte, remote uintptr) (int, error) {
	done := 0
	for done < len(dst) {
		local, remoteIov := iovecs(dst[done:], remote+uintptr(done))
		n, err := rawProcessCopy(unix.SYS_PROCESS_VM_READV, pid, local[:], remoteIov[:])
		if n <= 0 {
			return done, copyError("process_vm_readv", pid, remoteIov[0].Base, err)
		}
		done += n
	}
	return done, nil
}

// ProcessWrite copies src to address remote of process pid. Result and errors are as
// those of ProcessRead.
func ProcessWrite(pid int, src []byte, remote uintptr) (int, error) {
	done := 0
	for done < len(src) {
		local, remoteIov := iovecs(src[done:], remote+uintptr(done))
		n, err := rawProcessCopy(unix.SYS_PROCESS_VM_WRITEV, pid, local[:], remoteIov[:])
		if n <= 0 {
			return done, copyError("process_vm_writev", pid, remoteIov[0].Base, err)
		}
		done += n
	}
	return done, nil
}

// guardByte is what ProcessWriteGuarded writes to the guard.
var guardByte [1]byte

// ProcessWriteGuarded writes a zero byte to address guard of process pid, and then copies src, which has at most
// 1 GiB, to address remote. If guard is not writable, it changes nothing.
//
// Errors: as those of ProcessRead. After an error a part of src may have been copied.
func ProcessWriteGuarded(pid int, guard uintptr, src []byte, remote uintptr) error {
	local := [2]unix.Iovec{{Base: &guardByte[0]}, {Base: &src[0]}}
	local[0].SetLen(1)
	local[1].SetLen(len(src))
	n, err := rawProcessCopy(unix.SYS_PROCESS_VM_WRITEV, pid, local[:], []unix.RemoteIovec{{Base: guard, Len: 1}, {Base: remote, Len: len(src)}})
	if err != nil || n != 1+len(src) {
		return copyError("process_vm_writev", pid, remote, err)
	}
	return nil
}

func iovecs(b []byte, remote uintptr) (local [1]unix.Iovec, remoteIov [1]unix.RemoteIovec) {
	n := min(len(b), maxCopy)
	local[0].Base = &b[0]
	local[0].SetLen(n)
	remoteIov[0] = unix.RemoteIovec{Base: remote, Len: n}
	return local, remoteIov
}

func copyError(op string, pid int, at uintptr, err error) error {
	if err == nil { // nothing copied and no error: fail, as a retry could loop forever
		err = unix.EFAULT
	}
	if err == unix.ENOSYS {
		return unsupported(op, err)
	}
	return fmt.Errorf("%s process %d at %#x: %w", op, pid, at, err)
}
