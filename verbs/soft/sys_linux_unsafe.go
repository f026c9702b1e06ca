//go:build linux

package soft

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The sockets are nonblocking, so these calls use RawSyscall and do not notify the
// scheduler. A header's typed pointers keep its memory alive: they are in heap memory,
// which does not move and which the collector scans. The conversions follow rule 4 of
// package unsafe: a pointer is converted to uintptr within the call's argument list.

// mmsghdr is struct mmsghdr of sendmmsg and recvmmsg.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
}

func rawSendmsg(fd int, m *unix.Msghdr) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(m)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0, 0)
	return errno
}

// rawSendto sends b, which is not empty, to the address in the first n bytes of name.
func rawSendto(fd int, b []byte, name *[unix.SizeofSockaddrInet6]byte, n uint8) unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))),
		uintptr(len(b)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, uintptr(unsafe.Pointer(name)), uintptr(n))
	return errno
}

func rawRecvmsg(fd int, m *unix.Msghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(m)),
		unix.MSG_DONTWAIT, 0, 0, 0)
	return int(n), errno
}

// rawSendmmsg sends ms, at least one message, and returns how many were sent.
func rawSendmmsg(fd int, ms []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(ms))),
		uintptr(len(ms)), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

// rawRecvmmsg receives into ms, at least one message, and returns how many were
// received.
func rawRecvmmsg(fd int, ms []mmsghdr) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(ms))),
		uintptr(len(ms)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
