package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/verbstest"
)

func TestConformanceUDP(t *testing.T) { verbstest.Run(t, udpFixture) }
func TestConformanceThreadsUDP(t *testing.T) {
	f := udpFixture
	f.ThreadDomains = true
	verbstest.Run(t, f)
}

func TestGateAllocsUDP(t *testing.T) { verbstest.Gates(t, udpFixture) }

var udpFixture = verbstest.Fixture{
	Name: "soft-udp", Can: verbstest.Threads | verbstest.Background | verbstest.Packets | verbstest.Forgery,
	Open: func(t testing.TB, needs verbstest.Needs) *verbstest.Fabric {
		f := openReal(t, Config{Link: LinkUDP, Addr: localhost}, needs)
		f.Inject = func(to int, b []byte, m verbstest.Manner) {
			forge(t, f.Devices[1-to].(*device).udp, f.Devices[to].(*device).udp, b, m)
		}
		return f
	},
}

// forge sends a packet through the socket of the peer, or through another one.
func forge(t testing.TB, from, to *udp.Socket, b []byte, m verbstest.Manner) {
	if m == verbstest.Spoofed {
		var err error
		from, err = udp.Open(localhost, 0, 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, from.Close()) }()
	}
	src, dst := netip.AddrPortFrom(localhost, from.LID()), netip.AddrPortFrom(localhost, to.LID())
	sa := &unix.SockaddrInet4{Port: int(dst.Port()), Addr: dst.Addr().As4()}
	require.NoError(t, unix.Sendto(from.FD, verbstest.Seal(src, dst, b, m), 0, sa))
}
