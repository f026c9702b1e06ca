package udp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestOpenGroup: a missing interface is named for both families.
func TestOpenGroup(t *testing.T) {
	gone := &net.Interface{Index: 1 << 30, Name: "gone7"}
	for _, group := range []string{"239.77.85.9", "ff15::9"} {
		_, err := OpenGroup(netip.MustParseAddr(group), gone, 0)
		require.ErrorIs(t, err, ucs.ErrUnreachable)
		require.ErrorContains(t, err, "interface gone7")
	}
	u, err := Open(netip.MustParseAddr("127.0.0.1"), 0, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, u.Close()) }()
	_, err = u.GroupPeer(verbs.GIDOf(netip.MustParseAddr("239.77.85.9")), gone)
	require.ErrorContains(t, err, "interface gone7")
}

// TestSet: a set returns the sockets that have datagrams, all of them in turn if they are more than
// it returns at once, and never a removed one.
func TestSet(t *testing.T) {
	s, err := NewSet()
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	from, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(from)) }()
	var all []*Socket
	for range 3 * maxReady {
		u, err := Open(netip.MustParseAddr("127.0.0.1"), 0, 0)
		require.NoError(t, err)
		defer func() { require.NoError(t, u.Close()) }()
		require.NoError(t, s.Add(u))
		all = append(all, u)
	}
	require.Equal(t, all, s.All())
	require.Empty(t, s.Ready())
	send := func() {
		for _, u := range all {
			to := &unix.SockaddrInet4{Port: int(u.LID()), Addr: u.Addr.Addr().As4()}
			require.NoError(t, unix.Sendto(from, make([]byte, MinPacket), 0, to))
		}
	}
	seen := func() (seen map[*Socket]bool) {
		seen = map[*Socket]bool{}
		for range 3 {
			for _, u := range s.Ready() {
				seen[u] = true
			}
		}
		return seen
	}
	send()
	require.Len(t, seen(), len(all), "unread ones are returned in turn")
	for _, u := range all[1:] {
		s.Remove(u)
		require.Len(t, u.Recv(), 1, "the socket stays open")
	}
	require.Equal(t, all[:1], s.All())
	send()
	require.Equal(t, map[*Socket]bool{all[0]: true}, seen())
	require.NoError(t, s.Add(all[5]), "in the place of another one")
	require.Equal(t, map[*Socket]bool{all[0]: true, all[5]: true}, seen())
}
