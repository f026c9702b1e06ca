package udp

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The range of random ports, and how often Open tries another one.
const (
	firstPort = 0x8000
	numPorts  = 0x4000
	portTries = 256
)

// Socket is a UDP socket bound to one address. It carries packets in the format of
// RoCEv2.
//
// Concurrency: any goroutine may call segment and peer. The holder of the receive token
// calls recv. close must not run concurrently with any of them.
type Socket struct {
	FD           int
	Addr         netip.AddrPort
	zone         uint32      // scope id of a link-local address
	GSO          atomic.Bool // the kernel segments batches (UDP_SEGMENT)
	gro          bool        // the kernel delivers batches (UDP_GRO)
	rcvbuf       int         // size of the receive buffer in bytes, by the kernel's account
	UnprivRcvbuf int         // the size that an unprivileged socket of this host gets for the same request
	sndbuf       int
	ttl          int // the system's default for sent packets
	Counts       Counts
	batches      batchPool
	// Tap sees the packets: sent ones right before, received ones right after. nil: none.
	Tap func(sent bool, h *wire.Network, packet []byte)
	// HasQP reports whether the device has a queue pair, for replies to probes. nil: there are
	// none.
	HasQP  func(verbs.QPN) bool
	prober prober
	flowMu sync.Mutex
	flows  map[uint32]bool  // leased flow labels; guarded by flowMu
	ids    *identifications // nil: they are not watched
	_      ucs.Pad          // senders read the fields above, each receive writes those below
	rx     receiver
}

// Open binds a socket to addr, an address of this host. Port 0 means a random one.
// rcvbuf is the requested size of the socket buffers in bytes, 0 for the system's
// default. Socket.rcvbuf is the granted size.
func Open(addr netip.Addr, port uint16, rcvbuf int) (*Socket, error) {
	addr = addr.Unmap()
	if !addr.IsValid() || addr.IsUnspecified() || addr.IsMulticast() {
		return nil, fmt.Errorf("open udp port on %v, which is not the address of an interface: %w", addr, ucs.ErrInvalid)
	}
	u := new(Socket)
	if z := addr.Zone(); z != "" {
		if n, err := strconv.ParseUint(z, 10, 32); err == nil {
			u.zone = uint32(n)
		} else if i, err := net.InterfaceByName(z); err == nil {
			u.zone = uint32(i.Index)
		} else {
			return nil, fmt.Errorf("zone of %v: %w", addr, err)
		}
	}
	if err := u.open(addr, port, rcvbuf, func() error { return nil }); err != nil {
		return nil, fmt.Errorf("open udp port on %v: %w", addr, err)
	}
	return u, nil
}

// open creates the socket, calls configure for further options, and binds it.
func (u *Socket) open(addr netip.Addr, port uint16, rcvbuf int, configure func() error) error {
	family := unix.AF_INET
	if addr.Is6() {
		family = unix.AF_INET6
	}
	var err error
	if u.FD, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP); err != nil {
		return fmt.Errorf("udp socket: %w", err)
	}
	if err = u.setOptions(family, rcvbuf); err == nil {
		err = configure()
	}
	if err == nil {
		err = u.bind(addr, port)
	}
	if err != nil {
		return errors.Join(err, unix.Close(u.FD))
	}
	u.rx.datagrams = make([]*Datagram, 0, maxBuffers)
	u.rx.recvmmsgAfter = recvmmsgAfter
	u.rx.prepare(u, 0)
	return nil
}

// setOptions configures the socket. Path MTU discovery "probe" on an unconnected socket
// has three effects. The kernel sends identification 0 and forbids fragments, as the
// ICRC requires; and it reports a packet longer than the path MTU.
func (u *Socket) setOptions(family, rcvbuf int) error {
	type option struct{ level, name, value int }
	must := []option{{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE}}
	if family == unix.AF_INET6 {
		must = []option{
			{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1},
			{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE},
			// rxe and hardware send no UDP checksum; without this option their packets
			// are dropped.
			{unix.SOL_UDP, unix.UDP_NO_CHECK6_RX, 1},
			// The flow label is that of the address, not one that the kernel computes.
			{unix.IPPROTO_IPV6, unix.IPV6_AUTOFLOWLABEL, 0},
			{unix.IPPROTO_IPV6, ipv6FlowInfoSend, 1},
		}
	}
	for _, o := range must {
		if err := unix.SetsockoptInt(u.FD, o.level, o.name, o.value); err != nil {
			return fmt.Errorf("set socket option %d/%d: %w", o.level, o.name, err)
		}
	}
	_, err := unix.GetsockoptInt(u.FD, unix.SOL_UDP, unix.UDP_SEGMENT)
	u.GSO.Store(err == nil)
	u.gro = unix.SetsockoptInt(u.FD, unix.SOL_UDP, unix.UDP_GRO, 1) == nil
	// The count of dropped datagrams is optional.
	_ = unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, unix.SO_RXQ_OVFL, 1)
	if u.UnprivRcvbuf, err = u.setBuffer(unix.SO_RCVBUF, unix.SO_RCVBUF, rcvbuf); err != nil {
		return err
	}
	if u.rcvbuf, err = u.setBuffer(unix.SO_RCVBUF, unix.SO_RCVBUFFORCE, rcvbuf); err != nil {
		return err
	}
	if u.sndbuf, err = u.setBuffer(unix.SO_SNDBUF, unix.SO_SNDBUFFORCE, rcvbuf); err != nil {
		return err
	}
	level, name := unix.IPPROTO_IP, unix.IP_TTL
	if family == unix.AF_INET6 {
		level, name = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	if u.ttl, err = unix.GetsockoptInt(u.FD, level, name); err != nil {
		return fmt.Errorf("read time to live: %w", err)
	}
	return nil
}

// setBuffer requests a buffer size, beyond the system's limit if that is permitted. It
// returns the granted size.
func (u *Socket) setBuffer(opt, force, want int) (int, error) {
	if want > 0 && unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, force, want) != nil {
		if err := unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, opt, want); err != nil {
			return 0, fmt.Errorf("set socket buffer to %d: %w", want, err)
		}
	}
	got, err := unix.GetsockoptInt(u.FD, unix.SOL_SOCKET, opt)
	if err != nil {
		return 0, fmt.Errorf("read socket buffer: %w", err)
	}
	return got, nil
}

// bind binds the socket to port, or to a random free one if port is 0.
func (u *Socket) bind(addr netip.Addr, port uint16) error {
	for try := 0; ; try++ {
		p := port
		if port == 0 {
			var r [2]byte
			if _, err := rand.Read(r[:]); err != nil {
				return fmt.Errorf("choose a random port: %w", err)
			}
			p = firstPort + binary.NativeEndian.Uint16(r[:])%numPorts
		}
		var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(p), ZoneId: u.zone, Addr: addr.As16()}
		if addr.Is4() {
			sa = &unix.SockaddrInet4{Port: int(p), Addr: addr.As4()}
		}
		err := unix.Bind(u.FD, sa)
		if err == nil {
			u.Addr = netip.AddrPortFrom(addr.WithZone(""), p)
			return nil
		}
		if port != 0 || try == portTries || !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("bind port %d: %w", p, err)
		}
	}
}

// Close closes the socket.
func (u *Socket) Close() error {
	u.prober.stop()
	u.ids.close()
	if err := unix.Close(u.FD); err != nil {
		return fmt.Errorf("close udp port %v: %w", u.Addr, err)
	}
	return nil
}

// LID returns the UDP port. The device announces it as its LID, unless it is RoCEPort.
func (u *Socket) LID() uint16 { return u.Addr.Port() }

// GID returns the address as a GID.
func (u *Socket) GID() verbs.GID { return verbs.GIDOf(u.Addr.Addr()) }

// EnableClass enables the type of service, time to live and flow label of received
// datagrams, which are 0 until then.
func (u *Socket) EnableClass() error {
	level, opts := unix.IPPROTO_IP, []int{unix.IP_RECVTOS, unix.IP_RECVTTL}
	if u.Addr.Addr().Is6() {
		level, opts = unix.IPPROTO_IPV6, []int{unix.IPV6_RECVTCLASS, unix.IPV6_RECVHOPLIMIT, ipv6FlowInfo}
	}
	for _, o := range opts {
		if err := unix.SetsockoptInt(u.FD, level, o, 1); err != nil {
			return fmt.Errorf("enable type of service and time to live of received datagrams: %w", err)
		}
	}
	return nil
}

// Peer resolves a peer's address. lid is its port; 0 means RoCEPort.
func (u *Socket) Peer(gid verbs.GID, lid uint16) (Peer, error) {
	a := gid.Addr()
	if a.Is4() != u.Addr.Addr().Is4() || a.IsUnspecified() {
		return Peer{}, fmt.Errorf("peer %v from %v: %w", a, u.Addr.Addr(), ucs.ErrUnreachable)
	}
	port := lid
	if lid == 0 {
		port = RoCEPort
	}
	to := netip.AddrPortFrom(a, port)
	p := Peer{
		u: u, src: SourceOf(to), Prefix: wire.NewPrefix(u.Addr, to),
	}
	p.SockaddrLen = putSockaddr(&p.sockaddr, to, u.zone)
	return p, nil
}

// SetClass sets the type of service (traffic class) and time to live (hop limit) of
// packets to p. 0 means the system's default, which is groupTTL for a multicast group.
// Other values cost control data on each send.
func (u *Socket) SetClass(p *Peer, tclass, hops uint8) {
	usual := u.ttl
	if p.src.AddrPort().Addr().IsMulticast() {
		usual = groupTTL
	}
	if int(hops) == usual {
		hops = 0
	}
	p.tclass, p.ttl = tclass, hops
}

// Numbers of linux/in6.h that x/sys lacks.
const (
	ipv6FlowInfo      = 11
	ipv6FlowLabelMgr  = 32
	ipv6FlowInfoSend  = 33
	flowLabelGet      = 0
	flowLabelCreate   = 1
	flowLabelShareAny = 255
)

// SetFlowLabel sets the IPv6 flow label of packets to p; over IPv4 it has no effect.
//
// The kernel sends any label, unless a program of this network namespace has a label for
// itself: then only labels that are leased. So the label is leased, and any program may share it.
// A socket without privileges may lease 32; further ones are used without a lease.
//
// Errors: unix.EPERM if another program has that label for itself.
func (u *Socket) SetFlowLabel(p *Peer, label uint32) error {
	if label == 0 || p.SockaddrLen != unix.SizeofSockaddrInet6 {
		return nil
	}
	if !u.leases(label) {
		var lease [32]byte // struct in6_flowlabel_req: dst, label, action, share, flags u16, expires u16, linger u16, pad u32
		copy(lease[:16], p.sockaddr[8:24])
		binary.BigEndian.PutUint32(lease[16:], label)
		lease[20], lease[21] = flowLabelGet, flowLabelShareAny
		binary.NativeEndian.PutUint16(lease[22:], flowLabelCreate)
		err := unix.SetsockoptString(u.FD, unix.IPPROTO_IPV6, ipv6FlowLabelMgr, string(lease[:]))
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("flow label %#x belongs to another program alone: choose another one: %w", label, err)
		}
	}
	p.flow = label
	binary.BigEndian.PutUint32(p.sockaddr[4:], label)
	return nil
}

// leases reports whether label was leased before, and records that it is now.
func (u *Socket) leases(label uint32) bool {
	u.flowMu.Lock()
	defer u.flowMu.Unlock()
	if u.flows[label] {
		return true
	}
	if u.flows == nil {
		u.flows = make(map[uint32]bool)
	}
	u.flows[label] = true
	return false
}

// putSockaddr encodes an address as struct sockaddr_in or sockaddr_in6 and returns its
// length.
func putSockaddr(b *[unix.SizeofSockaddrInet6]byte, a netip.AddrPort, zone uint32) uint8 {
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if a.Addr().Is4() {
		binary.NativeEndian.PutUint16(b[:], unix.AF_INET)
		ip := a.Addr().As4()
		copy(b[4:], ip[:])
		return unix.SizeofSockaddrInet4
	}
	binary.NativeEndian.PutUint16(b[:], unix.AF_INET6)
	ip := a.Addr().As16()
	copy(b[8:], ip[:])
	if a.Addr().IsLinkLocalUnicast() || a.Addr().IsLinkLocalMulticast() {
		binary.NativeEndian.PutUint32(b[24:], zone)
	}
	return unix.SizeofSockaddrInet6
}

// parseSockaddr decodes what putSockaddr encodes; ok is false for anything else.
func parseSockaddr(b *[unix.SizeofSockaddrInet6]byte, n uint32) (s Source, ok bool) {
	s.port = binary.BigEndian.Uint16(b[2:])
	switch family := binary.NativeEndian.Uint16(b[:]); {
	case family == unix.AF_INET && n >= unix.SizeofSockaddrInet4:
		s.lo = 0xffff<<32 | uint64(binary.BigEndian.Uint32(b[4:]))
	case family == unix.AF_INET6 && n >= unix.SizeofSockaddrInet6:
		s.hi, s.lo = binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])
	default:
		return s, false
	}
	return s, true
}
