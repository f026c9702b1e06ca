package soft

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

var (
	loopback  = netip.MustParseAddr("127.0.0.1")
	loopback6 = netip.MustParseAddr("::1")
)

func openTestPort(t testing.TB, addr netip.Addr) *udp.Socket {
	t.Helper()
	u, err := udp.Open(addr, 0, 1<<20)
	if err != nil && addr.Is6() {
		t.Skipf("no IPv6 here: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.Close()) })
	return u
}

// udpPair is two ports of one address that know each other.
func udpPair(t testing.TB, addr netip.Addr) (a, b *udp.Socket, toB, toA udp.Peer) {
	t.Helper()
	a, b = openTestPort(t, addr), openTestPort(t, addr)
	toB, err := a.Peer(b.GID(), b.LID())
	require.NoError(t, err)
	toA, err = b.Peer(a.GID(), a.LID())
	require.NoError(t, err)
	return a, b, toB, toA
}

// arrivals waits until want says that it has seen enough datagrams.
func arrivals(t testing.TB, u *udp.Socket, want func(d *udp.Datagram) bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		for _, d := range u.Recv() {
			if !want(d) {
				return
			}
		}
		if time.Now().After(end) {
			require.FailNow(t, "not all came")
		}
		runtime.Gosched()
	}
}

// receive waits for n packets, checks each and returns them.
func receive(t testing.TB, u *udp.Socket, from *udp.Peer, n int) (got []packet) {
	t.Helper()
	arrivals(t, u, func(d *udp.Datagram) bool {
		require.True(t, from.Matches(d))
		for i := range d.Packets() {
			var p packet
			f, ok := decodePacket(d, i, &p, udp.ICRCSearch)
			require.Equal(t, wire.FaultNone, f)
			require.True(t, ok, "ICRC of packet %d", i)
			got = append(got, flat(&p))
		}
		return len(got) < n
	})
	return got
}

// plainICRC is the checksum of a packet of bytes b, ICRC included, by the
// annex's words: no tables, no prefix.
func plainICRC(b []byte, src, dst netip.AddrPort, id uint16) uint32 {
	n := len(b)
	h := wire.Network{Src: src, Dst: dst, TOS: 0xff, TTL: 0xff, ID: id}
	all := binary.BigEndian.AppendUint64(nil, ^uint64(0))
	all = h.AppendUDP(h.AppendIP(all, wire.UDPLen+n), n)
	if h.IPv4() {
		all[8+10], all[8+11] = 0xff, 0xff
	} else {
		binary.BigEndian.PutUint32(all[8:], 0x6fffffff)
	}
	all[len(all)-2], all[len(all)-1] = 0xff, 0xff
	at := len(all)
	all = append(all, b[:n-wire.ICRCLen]...)
	all[at+4] = 0xff
	return crc32.ChecksumIEEE(all)
}

// sendOne sends a packet in a train of its own.
func sendOne(t testing.TB, u *udp.Socket, to *udp.Peer, p *packet) {
	t.Helper()
	tr := u.Begin(to)
	require.True(t, addPacket(tr, p))
	require.Equal(t, ucs.OK, tr.Send())
}

func numbered(psn int) *packet {
	return &packet{Header: wire.Header{Opcode: wire.SendOnly, PSN: verbs.PSN(psn)}, n: 8, nsg: 1, sg: [verbs.MaxSGE][]byte{make([]byte, 8)}}
}

// garble draws bytes that are no packet: random ones, or a packet with an error.
func garble(r *rand.Rand, b []byte) []byte {
	n := r.IntN(100)
	switch r.IntN(8) {
	case 0:
		n = r.IntN(udp.MinPacket)
	case 1:
		n = r.IntN(udp.MaxPayload)
	case 2, 3, 4:
		ops := allOpcodes()
		op := ops[r.IntN(len(ops))]
		n = randomPacket(r, op, payloadOf(r, op)).encode(b) + wire.ICRCLen
		return b[:n]
	}
	for i := range b[:n] {
		b[i] = byte(r.Uint32())
	}
	return b[:n]
}
