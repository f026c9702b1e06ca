package udp

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Multicast. Linux delivers a datagram to a group only to sockets that are bound to the group's
// address or to none: the socket of a device, which is bound to an interface's address, gets
// none even if it joins. So each group has a socket, bound to the group and RoCEPort, which
// other devices and processes of this host share by SO_REUSEADDR: each gets a copy. Datagrams
// to a group are sent from the device's own socket.
//
// The flag MULTICAST of an interface has no effect on either. The loopback interface carries
// IPv4 groups. IPv6 groups need a route there.

// groupTTL is the system's default time to live of datagrams to a multicast group: they stay
// in the subnet.
const groupTTL = 1

// OpenGroup opens the socket of a multicast group on an interface. It receives no datagrams
// that other programs' sockets receive from another interface. rcvbuf is as of Open.
//
// Errors: ucs.ErrNoResource if the system's limit of memberships or of descriptors is
// reached, ucs.ErrBusy if the port is in use by a program that does not share it,
// ucs.ErrUnreachable if the interface is gone, ucs.ErrUnsupported if the system has no groups of
// IPv6 for a program without privileges.
func OpenGroup(group netip.Addr, ifi *net.Interface, rcvbuf int) (*Socket, error) {
	u := &Socket{zone: uint32(ifi.Index)}
	if err := u.open(group, RoCEPort, rcvbuf, func() error { return u.join(group, ifi) }); err != nil {
		return nil, fmt.Errorf("join on interface %s: %w", ifi.Name, explainJoin(err))
	}
	if err := u.EnableClass(); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// join makes the socket, which is not bound yet, a member of a group on one interface. A socket
// gets what arrives at any interface on which some socket of the host has joined the group: for
// IPv4 unless MULTICAST_ALL is off, for IPv6 unless the socket is bound to an interface.
func (u *Socket) join(group netip.Addr, ifi *net.Interface) error {
	share := unix.SetsockoptInt(u.FD, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if group.Is4() {
		m := unix.IPMreqn{Multiaddr: group.As4(), Ifindex: int32(ifi.Index)}
		return cmp.Or(share,
			unix.SetsockoptInt(u.FD, unix.IPPROTO_IP, unix.IP_MULTICAST_ALL, 0),
			unix.SetsockoptIPMreqn(u.FD, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, &m))
	}
	m := unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(ifi.Index)}
	return cmp.Or(share,
		unix.BindToDevice(u.FD, ifi.Name),
		unix.SetsockoptIPv6Mreq(u.FD, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, &m))
}

// joinFaults says what to do about the errors of joining.
var joinFaults = []struct {
	errno unix.Errno
	kind  error
	todo  string
}{
	{unix.ENOBUFS, ucs.ErrNoResource, "raise the sysctl net.ipv4.igmp_max_memberships"},
	{unix.ENOMEM, ucs.ErrNoResource, "raise the sysctl net.core.optmem_max"},
	{unix.EMFILE, ucs.ErrNoResource, "each group needs a descriptor, raise their limit (ulimit -n)"},
	{unix.EADDRINUSE, ucs.ErrBusy, "end the program that does not share port 4791, or unload the kernel's rdma_rxe"},
	{unix.EPERM, ucs.ErrUnsupported, "groups of IPv6 need Linux 5.7, or CAP_NET_RAW"},
	{unix.ENODEV, ucs.ErrUnreachable, "the interface is gone or has no address of this family"},
}

// explainJoin adds to an error of joining what to do about it.
func explainJoin(err error) error {
	for _, f := range joinFaults {
		if errors.Is(err, f.errno) {
			return fmt.Errorf("%w: %s: %w", err, f.todo, f.kind)
		}
	}
	return err
}

// GroupPeer returns the address of a multicast group, for datagrams that leave by an
// interface. They are looped back to the members on this host.
//
// Errors: ucs.ErrUnreachable if the socket's address is of another family, or the interface
// has no route to the group.
func (u *Socket) GroupPeer(gid verbs.GID, ifi *net.Interface) (Peer, error) {
	p, err := u.Peer(gid, RoCEPort)
	if err != nil {
		return p, err
	}
	group := gid.Addr()
	if err := u.sendGroupsBy(u.FD, ifi.Index); err != nil {
		return p, fmt.Errorf("send to multicast groups on interface %s: %w", ifi.Name, err)
	}
	if p.SockaddrLen == unix.SizeofSockaddrInet6 {
		err = u.checkGroupRoute(group, ifi)
	}
	return p, err
}

// sendGroupsBy makes datagrams of a socket to multicast groups leave by an interface.
func (u *Socket) sendGroupsBy(fd, ifindex int) error {
	if u.Addr.Addr().Is4() {
		return cmp.Or(
			unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(ifindex)}),
			unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_LOOP, 1))
	}
	return cmp.Or(
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, ifindex),
		unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_LOOP, 1))
}

// checkGroupRoute returns an error if an interface has no route to an IPv6 group. The system
// adds one with the first address of an interface, but not to the loopback interface. There
// it must be of type local: the system accepts other ones and delivers nothing.
func (u *Socket) checkGroupRoute(group netip.Addr, ifi *net.Interface) error {
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_UDP)
	if err != nil {
		return fmt.Errorf("udp socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err = u.sendGroupsBy(fd, ifi.Index); err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet6{Port: RoCEPort, Addr: group.As16()})
	}
	if errors.Is(err, unix.ENETUNREACH) {
		kind := "multicast"
		if ifi.Flags&net.FlagLoopback != 0 {
			kind = "local"
		}
		return fmt.Errorf("interface %s has no route to %v: add one (ip -6 route add %s ff00::/8 dev %s table local): %w: %w",
			ifi.Name, group, kind, ifi.Name, err, ucs.ErrUnreachable)
	}
	return err
}
