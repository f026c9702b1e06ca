package soft

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/verbs"
)

// The kernel is asked for them from the first queue pair on whose program reads
// them.
func TestUDPClassWhereRead(t *testing.T) {
	p := New(Config{Link: LinkUDP, Addr: localhost})
	infos, err := p.Devices()
	require.NoError(t, err)
	d, err := p.Open(infos[0])
	require.NoError(t, err)
	closeAtEnd(t, d)
	pd, err := d.AllocPD()
	require.NoError(t, err)
	closeAtEnd(t, pd)
	cq, err := d.CreateCQ(verbs.CQConfig{Depth: 4})
	require.NoError(t, err)
	closeAtEnd(t, cq)
	for _, without := range []bool{true, false} {
		q, err := pd.CreateQP(verbs.QPConfig{
			Type: verbs.UD, SendCQ: cq, RecvCQ: cq, NoClass: without,
			Caps: verbs.QPCaps{MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		})
		require.NoError(t, err)
		closeAtEnd(t, q)
		asked, err := unix.GetsockoptInt(d.(*device).udp.FD, unix.IPPROTO_IP, unix.IP_RECVTOS)
		require.NoError(t, err)
		require.Equal(t, !without, asked == 1)
	}
}

// TestGRHArea: the area in front of a datagram's data shows the headers of its packet.
func TestGRHArea(t *testing.T) {
	area := make([]byte, grhLen)
	for _, a := range []netip.Addr{loopback, loopback6} {
		g := verbs.GIDOf(a)
		putGRH(area, &packet{sgid: g, dgid: g, tos: 0x68, ttl: 17}, 24)
		if a.Is4() {
			require.Equal(t, make([]byte, 20), area[:20])
			require.Equal(t, []byte{0x45, 0x68, 0, 52, 0, 0, 0x40, 0, 17, 17}, area[20:30])
			require.Equal(t, []byte{127, 0, 0, 1, 127, 0, 0, 1}, area[32:])
			sum := 0
			for i := 20; i < 40; i += 2 {
				sum += int(area[i])<<8 | int(area[i+1])
			}
			require.Equal(t, 0xffff, sum&0xffff+sum>>16)
			continue
		}
		require.Equal(t, []byte{0x66, 0x80, 0, 0, 0, 32, 17, 17}, area[:8])
		one := append(make([]byte, 15), 1)
		require.Equal(t, append(one, one...), area[8:])
	}
}
