package soft

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var loopback = netip.MustParseAddr("127.0.0.1")

func openTestPort(t testing.TB, addr netip.Addr) *udpPort {
	t.Helper()
	u, err := openUDP(addr, 0, 1<<20)
	if err != nil && addr.Is6() {
		t.Skipf("no IPv6 here: %v", err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, u.close()) })
	return u
}

// pair is two ports of one address that know each other.
func udpPair(t testing.TB, addr netip.Addr) (a, b *udpPort, toB, toA udpPeer) {
	t.Helper()
	a, b = openTestPort(t, addr), openTestPort(t, addr)
	toB, err := a.peer(b.gid(), b.lid())
	require.NoError(t, err)
	toA, err = b.peer(a.gid(), a.lid())
	require.NoError(t, err)
	return a, b, toB, toA
}

// receive waits for n packets and gives them, each checked.
func receive(t testing.TB, u *udpPort, from *udpPeer, n int) (got []packet) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); len(got) < n; {
		require.True(t, time.Now().Before(end), "%d of %d packets came", len(got), n)
		for _, d := range u.recv() {
			require.True(t, from.sent(d))
			for i := range d.packets() {
				var p packet
				f, ok := d.open(i, &p)
				require.Equal(t, wire.FaultNone, f)
				require.True(t, ok, "ICRC of packet %d", i)
				got = append(got, flat(&p))
			}
		}
	}
	return got
}

func TestUDPTrain(t *testing.T) {
	a, b, toB, toA := udpPair(t, loopback)
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 8, 63, copyLimit, copyLimit + 1, 1023, 1024} {
		var sent []packet
		tr := a.train(&toB)
		for len(sent) < 40 {
			p := randomPacket(r, wire.SendMiddle, n)
			require.True(t, tr.add(p))
			sent = append(sent, flat(p))
		}
		require.Equal(t, ucs.OK, tr.send())
		require.Equal(t, sent, receive(t, b, &toA, len(sent)))
	}
	require.Zero(t, b.counts.idSearched.Load())
}

func TestUDPOpen(t *testing.T) {
	u := openTestPort(t, loopback)
	require.GreaterOrEqual(t, u.lid(), uint16(0x8000))
	require.Less(t, u.lid(), uint16(0xc000))
	require.Equal(t, verbs.GIDOf(loopback), u.gid())
	require.Positive(t, u.rcvbuf)

	_, err := openUDP(loopback, u.lid(), 0)
	require.Error(t, err, "the port is taken")
	for _, bad := range []string{"0.0.0.0", "224.0.0.1", "::"} {
		_, err = openUDP(netip.MustParseAddr(bad), 0, 0)
		require.ErrorIs(t, err, ucs.ErrInvalid, bad)
	}
	_, err = u.peer(u.gid(), 0)
	require.ErrorIs(t, err, ucs.ErrInvalid, "LID 0 is for devices on 4791")
	_, err = u.peer(verbs.GIDOf(netip.MustParseAddr("fe80::1")), 5)
	require.ErrorIs(t, err, ucs.ErrUnreachable)
}
