package shmem

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// These system calls do not wait for other processes. So they are raw calls without the scheduler's hooks (92
// ns instead of 122). The conversions follow rule 4 of package unsafe: the pointer
// becomes a uintptr in the call's argument list.

func rawSignal(fd int) unix.Errno {
	one := uint64(1)
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), 8)
	return errno
}

func rawDrain(fd int) bool {
	var count uint64
	_, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&count)), 8)
	return errno == 0
}

func rawWriteByte(fd int) unix.Errno {
	var b [1]byte
	_, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&b)), 1)
	return errno
}

// rawReadLen is the maximum number of bytes that rawRead reads.
const rawReadLen = 512

// rawRead reads bytes and returns their number; 0 or less if there are none.
func rawRead(fd int) int {
	var b [rawReadLen]byte
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&b)), rawReadLen)
	if errno != 0 {
		return -1
	}
	return int(n)
}

// rawEpollPoll is epoll_pwait with timeout 0. room is the buffer for the events.
func rawEpollPoll(ep int, room []unix.EpollEvent) (int, error) {
	if len(room) == 0 {
		return 0, unix.EINVAL
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep),
		uintptr(unsafe.Pointer(unsafe.SliceData(room))), uintptr(len(room)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// rawProcessCopy is process_vm_readv or process_vm_writev.
func rawProcessCopy(call uintptr, pid int, local []unix.Iovec, remote []unix.RemoteIovec) (int, error) {
	n, _, errno := unix.RawSyscall6(call, uintptr(pid),
		uintptr(unsafe.Pointer(unsafe.SliceData(local))), uintptr(len(local)),
		uintptr(unsafe.Pointer(unsafe.SliceData(remote))), uintptr(len(remote)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
