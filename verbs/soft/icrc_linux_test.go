package soft

import (
	"encoding/binary"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft/internal/udp"
	"github.com/goucx/goucx/verbs/wire"
)

// TestICRCModes: what each mode and kind of sender makes of an ICRC.
func TestICRCModes(t *testing.T) {
	for _, c := range []struct {
		mode          ICRCMode
		soft, foreign udp.ICRCCheck
	}{
		{ICRCSearch, udp.ICRCSearch, udp.ICRCSearchAny},
		{ICRCOff, udp.ICRCNone, udp.ICRCSearchAny},
		{ICRCStrict, udp.ICRCStrict, udp.ICRCStrict},
	} {
		d := &device{conf: Config{ICRC: c.mode}}
		require.Equal(t, [2]udp.ICRCCheck{c.soft, c.foreign}, [2]udp.ICRCCheck{d.icrcCheck(false), d.icrcCheck(true)}, "%v", c.mode)
	}
	bad := Config{ICRC: numICRCModes}
	require.ErrorContains(t, bad.Validate(), "ICRC")
	require.Equal(t, "icrc mode 3", numICRCModes.String())
}

// TestICRCOff: a connected queue pair takes packets of a soft peer with wrong ICRCs, on the fast
// path and on the other one. A foreign peer's are dropped.
func TestICRCOff(t *testing.T) {
	for name, c := range map[string]struct {
		mode     ICRCMode
		features uint32
		n        int
		taken    bool
	}{
		"off, short":   {ICRCOff, verbs.PeerGoucx, 8, true},
		"off, long":    {ICRCOff, verbs.PeerGoucx, 600, true},
		"off, foreign": {ICRCOff, 0, 8, false},
		"search":       {ICRCSearch, verbs.PeerGoucx, 8, false},
		"strict":       {ICRCStrict, verbs.PeerGoucx, 600, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := New(Config{Link: LinkUDP, Addr: localhost, ICRC: c.mode, Engine: EngineInline})
			a, b := newEnd(t, New(Config{Link: LinkUDP, Addr: localhost}), verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
			b.connectFeatures(a, verbs.QPAttr{PeerFeatures: c.features, MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 1})
			b.recv(1, 0, 4096)
			to, err := a.device().udp.Peer(verbs.GIDOf(localhost), b.device().lid)
			require.NoError(t, err)
			to.Prefix = faultPrefix
			data := a.buf[:c.n]
			msg := packet{Header: wire.Header{Opcode: wire.SendOnly, DestQP: b.qp.QPN(), PKey: defaultPKey}, n: c.n, nsg: 1, sg: [verbs.MaxSGE][]byte{data}}
			require.True(t, udpLink{a.device()}.sendOne(&route{udp: to}, &msg, 0))
			if c.taken {
				require.Equal(t, uint32(c.n), b.completion(b).Len)
				require.Zero(t, value(t, b.device(), "device.dropped_icrc"))
				return
			}
			for value(t, b.device(), "device.dropped_icrc") == 0 {
				b.cq.Poll(nil)
			}
		})
	}
}

// rawSender sends UDP packets with chosen IPv4 identifications.
type rawSender struct {
	t    *testing.T
	fd   int
	from netip.AddrPort
	to   netip.AddrPort
}

// send sends a datagram to a UD queue pair. The ICRC is computed with identification sealed, the
// IPv4 header has id.
func (r *rawSender) send(qpn verbs.QPN, psn verbs.PSN, sealed, id uint16) {
	h := packet{Header: wire.Header{Opcode: wire.UDSendOnly, DestQP: qpn, PSN: psn, PKey: defaultPKey, QKey: testQKey, SrcQP: 5}}
	b := make([]byte, wire.MaxHeaderLen)
	h.encode(b)
	b = b[:wire.UDSendOnly.Info().PacketLen(0)]
	pre := wire.NewPrefix(r.from, r.to)
	pre.Seal(b, sealed)
	n := wire.Network{Src: r.from, Dst: r.to, TTL: 64, ID: id}
	all := n.AppendUDP(n.AppendIP(nil, wire.UDPLen+len(b)), len(b))
	binary.BigEndian.PutUint16(all[len(all)-2:], 0) // no UDP checksum
	all = append(all, b...)
	require.NoError(r.t, unix.Sendto(r.fd, all, 0, &unix.SockaddrInet4{Addr: r.to.Addr().As4()}))
}

// TestICRCStrict: with a packet socket, a datagram with any identification is taken if its ICRC
// is right for that one. A search would also take it if it were right for another one.
func TestICRCStrict(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	open := func(t *testing.T, mode ICRCMode, port uint16) (*end, *rawSender) {
		b := newEnd(t, New(Config{Link: LinkUDP, Addr: localhost, Port: port, ICRC: mode, Engine: EngineInline}), verbs.UD, 4096)
		b.readyUD()
		for range 8 {
			b.recv(1, 0, 64)
		}
		return b, &rawSender{t, fd, netip.AddrPortFrom(localhost, 0xd123), netip.AddrPortFrom(localhost, b.device().lid)}
	}

	// No foreign peer sends to another port than 4791. So what a search finds there must fit a soft device.
	b, r := open(t, ICRCSearch, 0)
	for i, id := range []uint16{1, 64, 0xffff, 63} {
		r.send(b.qp.QPN(), verbs.PSN(i), id, id)
	}
	for range 2 {
		b.completion(b)
	}
	require.EqualValues(t, 2, value(t, b.device(), "device.dropped_icrc"))

	for _, mode := range []ICRCMode{ICRCSearch, ICRCStrict} {
		t.Run(mode.String(), func(t *testing.T) {
			b, r := open(t, mode, wire.Port)
			if mode == ICRCStrict {
				require.NoError(t, b.device().udp.ShowsIdentifications())
			}
			for i, id := range []uint16{1, 63, 64, 0x1234, 0xffff} {
				r.send(b.qp.QPN(), verbs.PSN(i), id, id)
				require.Equal(t, uint32(grhLen), b.completion(b).Len, "identification %d", id)
			}
			require.NotZero(t, value(t, b.device(), "udp.id_searched"))
			r.send(b.qp.QPN(), 9, 0x1111, 0x1234)
			if mode == ICRCSearch {
				b.completion(b)
				return
			}
			for value(t, b.device(), "device.dropped_icrc") == 0 {
				b.cq.Poll(nil)
			}
			// The same packet again, as it should be.
			r.send(b.qp.QPN(), 9, 0x1111, 0x1111)
			b.completion(b)
		})
	}
}

// TestICRCStrictRefuses: without a packet socket, strict refuses foreign peers over IPv4, and
// takes soft ones.
func TestICRCStrictRefuses(t *testing.T) {
	p := New(Config{Link: LinkUDP, Addr: localhost, ICRC: ICRCStrict})
	a, b := newEnd(t, p, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
	a.connect(b)
	b.connect(a)
	b.recv(1, 0, 4096)
	a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 4000)}})
	require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
	c := newEnd(t, New(Config{Link: LinkUDP, Addr: localhost}), verbs.RC, 64)
	c.device().conf.ICRC = ICRCStrict // its socket was opened without a packet socket
	_, err := c.pd.CreateAH(verbs.AHAttr{DGID: verbs.GIDOf(localhost), DLID: b.device().lid, Port: 1})
	refused(t, err, ucs.ErrUnsupported, "CAP_NET_RAW")
}
