//go:build linux

package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs/wire"
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

// rawEpollWait returns how many descriptors of an epoll set are ready, without waiting, and
// stores their events in ev, which has room for one at least. No descriptor is ready after an
// error.
func rawEpollWait(fd int, ev []unix.EpollEvent) int {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(ev))),
		uintptr(len(ev)), 0, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// tapPackets passes the packets of a segment batch to Socket.Tap, assembled from their
// pieces.
//
//go:noinline
func (t *Batch) tapPackets() {
	h := wire.Network{Src: t.u.Addr, Dst: t.Peer.src.AddrPort(), TOS: t.Peer.tclass, TTL: t.Peer.ttl, FlowLabel: t.Peer.flow}
	switch {
	case h.TTL != 0:
	case h.Dst.Addr().IsMulticast():
		h.TTL = groupTTL
	default:
		h.TTL = DefaultTTL
	}
	all := make([]byte, 0, t.Total)
	from := 0
	for i := range t.Count {
		end, n := t.niov, t.segLen
		if t.State != Singles {
			h.ID = uint16(i)
		} else {
			end, n = int(t.iovEnds[i]), t.Total
		}
		for ; from < end; from++ {
			v := &t.iov[from]
			// Each element is a Go slice, added by piece with its length.
			all = append(all, unsafe.Slice(v.Base, int(v.Len))...)
		}
		n = min(n, len(all))
		t.u.Tap(true, &h, all[:n])
		all = all[n:]
	}
}
