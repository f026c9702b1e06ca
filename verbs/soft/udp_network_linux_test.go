package soft

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// inOwnNetwork runs the test again in a process with a network namespace of its
// own, and is true there. segments is the most packets of a train that the
// loopback there takes whole, 0 for as many as usual.
func inOwnNetwork(t *testing.T, mtu, segments uint32) bool {
	t.Helper()
	inside := suitetest.InOwnNetwork(t)
	if inside {
		setLoopback(t, mtu, segments)
	}
	return inside
}

// setLoopback brings the loopback up, by a message of rtnetlink.
func setLoopback(t *testing.T, mtu, segments uint32) {
	t.Helper()
	ne := binary.NativeEndian
	attr := func(b []byte, name uint16, v uint32) []byte {
		return ne.AppendUint32(ne.AppendUint16(ne.AppendUint16(b, 8), name), v)
	}
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofIfInfomsg)
	ne.PutUint16(b[4:], unix.RTM_NEWLINK)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK)
	info := b[unix.SizeofNlMsghdr:]
	ne.PutUint32(info[4:], 1) // the loopback's index
	ne.PutUint32(info[8:], unix.IFF_UP)
	ne.PutUint32(info[12:], unix.IFF_UP)
	b = attr(b, unix.IFLA_MTU, mtu)
	if segments != 0 {
		b = attr(b, unix.IFLA_GSO_MAX_SEGS, segments)
	}
	ne.PutUint32(b, uint32(len(b)))

	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, unix.Sendto(fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}))
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, unix.SizeofNlMsghdr+4)
	require.Zero(t, ne.Uint32(answer[unix.SizeofNlMsghdr:]), "rtnetlink refused")
}

// Where the system cuts a train into packets, their identifications are those
// that the ICRCs were computed with; and the receiver, who does not see them,
// finds them.
func TestUDPSegmentsOnTheWire(t *testing.T) {
	if !inOwnNetwork(t, 9000, 1) {
		return
	}
	const ipv4 = unix.ETH_P_IP>>8 | unix.ETH_P_IP&0xff<<8 // big-endian
	sniff, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, ipv4)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(sniff)) }()
	a, b, toB, toA := udpPair(t, loopback)
	require.True(t, a.GSO.Load(), "Linux segments datagrams since 4.18")
	p := &packet{Header: wire.Header{Opcode: wire.WriteMiddle}, n: 4096, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 4096)}}
	const n = 10
	tr := a.Begin(&toB)
	for i := range n {
		p.PSN = verbs.PSN(i)
		require.True(t, addPacket(tr, p))
	}
	require.Equal(t, ucs.OK, tr.Send())
	for i, q := range receive(t, b, &toA, n) {
		require.Equal(t, verbs.PSN(i), q.PSN)
	}
	require.Equal(t, uint64(n-1), b.Counts[udp.IDSearched].Load())

	frame := make([]byte, 1<<16)
	for i := range n {
		k, _, err := unix.Recvfrom(sniff, frame, 0)
		require.NoError(t, err)
		ip := frame[:k]
		require.Equal(t, wire.IPv4Len+wire.UDPLen+wire.WriteMiddle.Info().PacketLen(4096), k)
		require.Equal(t, uint16(i), binary.BigEndian.Uint16(ip[4:]), "identification")
		require.Equal(t, byte(0x40), ip[6], "not to be fragmented")
		bth := ip[wire.IPv4Len+wire.UDPLen:]
		require.Equal(t, plainICRC(bth, a.Addr, b.Addr, uint16(i)), binary.LittleEndian.Uint32(bth[len(bth)-4:]))
	}
}

// A packet that is longer than the path takes is refused by name, alone and in
// a train; a shorter one goes.
func TestUDPTooLong(t *testing.T) {
	if !inOwnNetwork(t, 1500, 0) {
		return
	}
	a, b, toB, toA := udpPair(t, loopback)
	send := func(packets, n int) ucs.Status {
		tr := a.Begin(&toB)
		for range packets {
			require.True(t, addPacket(tr, &packet{Header: wire.Header{Opcode: wire.SendMiddle}, n: n, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, n)}}))
		}
		return tr.Send()
	}
	for _, gso := range []bool{true, false} {
		a.GSO.Store(a.GSO.Load() && gso)
		require.Equal(t, ucs.TooLong, send(1, 4096))
		require.Equal(t, ucs.TooLong, send(3, 4096))
		require.Equal(t, ucs.OK, send(3, 1024))
		receive(t, b, &toA, 3)
	}
	require.Equal(t, uint64(4), a.Counts[udp.TxTooLong].Load())
}

// Without a way to the peer the send says so, and no later one suffers.
func TestUDPUnreachable(t *testing.T) {
	if !inOwnNetwork(t, 1500, 0) {
		return
	}
	a, b, toB, toA := udpPair(t, loopback)
	far, err := a.Peer(verbs.GIDOf(netip.MustParseAddr("10.9.8.7")), 33000)
	require.NoError(t, err)
	for _, n := range []int{1, 3} {
		tr := a.Begin(&far)
		for i := range n {
			require.True(t, addPacket(tr, numbered(i)))
		}
		require.Equal(t, ucs.Unreachable, tr.Send())
	}
	require.Equal(t, uint64(2), a.Counts[udp.TxUnreachable].Load())
	sendOne(t, a, &toB, numbered(1))
	receive(t, b, &toA, 1)
}

// Nobody listens at the peer's port: packets are lost as on any network.
func TestUDPNobodyThere(t *testing.T) {
	a, b, toB, _ := udpPair(t, loopback)
	gone, err := udp.Open(loopback, 0, 0)
	require.NoError(t, err)
	toGone, err := a.Peer(gone.GID(), gone.LID())
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	for i := range 10 {
		sendOne(t, a, &toGone, numbered(i))
		sendOne(t, a, &toB, numbered(i))
	}
	n := 0
	for end := time.Now().Add(20 * time.Second); n < 10; {
		require.True(t, time.Now().Before(end))
		n += len(b.Recv())
	}
}
