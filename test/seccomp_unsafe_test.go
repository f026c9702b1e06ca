//go:build linux

package test

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// installFilter gives this thread, and what it executes, a seccomp filter.
func installFilter(program []unix.SockFilter) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	f := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	// Rule 4 of package unsafe: the conversion stands in the call.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&f)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}
