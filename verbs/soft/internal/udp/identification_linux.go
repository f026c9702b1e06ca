package udp

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/wire"
)

// identifications reads the IPv4 identifications of packets for a socket: a packet socket
// gets the first bytes of each frame with one, before the UDP socket gets its payload. So a
// packet's identification is known when its ICRC is checked.
//
// Concurrency: mu guards all but err.
type identifications struct {
	err error // why there is no packet socket; nil also over IPv6, which has no identifications

	mu   sync.Mutex
	fd   int              // -1: none
	seen [4096]shownFrame // the last frames, by a hash of them
	buf  [identSnap]byte
}

// shownFrame is a frame that the packet socket has shown. The zero shownFrame is none: an
// identification of 0 is not shown.
type shownFrame struct {
	src      uint32
	port     uint16
	id       uint16
	length   uint16 // of the UDP payload
	qpn, psn uint32
}

// identSnap is how many bytes of a frame are read: up to the end of the BTH.
const identSnap = wire.IPv4Len + wire.UDPLen + wire.BTHLen

// WatchIdentifications opens a packet socket for identifications, if the address is an IPv4
// one. Where that is not permitted, ShowsIdentifications returns the reason.
func (u *Socket) WatchIdentifications() {
	w := &identifications{fd: -1}
	u.ids = w
	if u.Addr.Addr().Is6() {
		return
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		w.err = fmt.Errorf("packet socket: %w", err)
		return
	}
	ip := u.Addr.Addr().As4()
	if err = filterFrames(fd, binary.BigEndian.Uint32(ip[:]), u.Addr.Port()); err == nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 4<<20) // a smaller one loses more packets
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff})})
	}
	if err != nil {
		w.err = fmt.Errorf("packet socket: %w", err)
		_ = unix.Close(fd)
		return
	}
	w.fd = fd
}

// filterFrames lets a packet socket receive the first bytes of unfragmented UDP packets to
// an address and port that have an identification.
func filterFrames(fd int, addr uint32, port uint16) error {
	const drop = 13
	at := 0
	load := func(size uint16, off uint32) unix.SockFilter {
		at++
		return unix.SockFilter{Code: unix.BPF_LD | size | unix.BPF_ABS, K: off}
	}
	unless := func(op uint16, k uint32, wanted bool) unix.SockFilter { // continues if the test has the wanted result
		f := unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, K: k}
		at++
		if wanted {
			f.Jf = uint8(drop - at)
		} else {
			f.Jt = uint8(drop - at)
		}
		return f
	}
	program := []unix.SockFilter{
		load(unix.BPF_B, 0), unless(unix.BPF_JEQ, 0x45, true), // IPv4 without options
		load(unix.BPF_B, 9), unless(unix.BPF_JEQ, unix.IPPROTO_UDP, true),
		load(unix.BPF_H, 6), unless(unix.BPF_JSET, 0x3fff, false), // no fragment
		load(unix.BPF_H, 4), unless(unix.BPF_JEQ, 0, false), // an identification
		load(unix.BPF_W, 16), unless(unix.BPF_JEQ, addr, true),
		load(unix.BPF_H, wire.IPv4Len+2), unless(unix.BPF_JEQ, uint32(port), true),
		{Code: unix.BPF_RET | unix.BPF_K, K: identSnap},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

// ShowsIdentifications returns nil if the identification of each received packet is known,
// or why not.
func (u *Socket) ShowsIdentifications() error {
	if u.ids == nil {
		return fmt.Errorf("no packet socket: %w", ucs.ErrUnsupported)
	}
	return u.ids.err
}

// showsIdentification reports whether the packet b from a sender had that identification.
func (u *Socket) showsIdentification(from *Source, id uint16, b []byte) bool {
	w := u.ids
	if w == nil {
		return false
	}
	want := shownFrame{
		src: uint32(from.lo), port: from.port, id: id, length: uint16(len(b)),
		qpn: uint32(wire.BTH(b).DestQP()), psn: uint32(wire.BTH(b).PSN()),
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 && w.seen[want.slot()] != want {
		w.read()
	}
	return w.seen[want.slot()] == want
}

// slot returns the index of the frame in identifications.seen.
func (f *shownFrame) slot() uint32 {
	return (f.src ^ uint32(f.port)<<16 ^ uint32(f.id) ^ f.qpn<<7 ^ f.psn) * 0x9e3779b1 >> 20
}

// read reads all frames from the packet socket.
func (w *identifications) read() {
	for {
		n, err := unix.Read(w.fd, w.buf[:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n < identSnap {
			return // it is empty
		}
		b := w.buf[:]
		bth := wire.BTH(b[wire.IPv4Len+wire.UDPLen:])
		f := shownFrame{
			src: binary.BigEndian.Uint32(b[12:]), port: binary.BigEndian.Uint16(b[wire.IPv4Len:]), id: binary.BigEndian.Uint16(b[4:]),
			length: binary.BigEndian.Uint16(b[wire.IPv4Len+4:]) - wire.UDPLen, qpn: uint32(bth.DestQP()), psn: uint32(bth.PSN()),
		}
		w.seen[f.slot()] = f
	}
}

// close closes the packet socket. A packet of the socket may still wait for its queue pair.
func (w *identifications) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fd >= 0 {
		_ = unix.Close(w.fd)
		w.fd = -1
	}
}
