package soft

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// bothFamilies opens a device on the loopback interface with an IPv4 and an IPv6 GID. first
// is GID 0.
func bothFamilies(t *testing.T, first netip.Addr) *Provider {
	t.Helper()
	p := New(Config{Link: LinkUDP, AllGIDs: true, Addr: first})
	infos, err := p.Devices()
	if err != nil && first.Is6() {
		t.Skipf("no IPv6 here: %v", err)
	}
	require.NoError(t, err)
	require.Len(t, infos, 1)
	c, err := p.Open(infos[0])
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	if port, err := c.Port(1); err == nil && port.GIDs < 2 {
		t.Skip("no IPv6 here: the loopback interface has one address")
	}
	return p
}

// gidOf returns the index of the device's GID of that family.
func gidOf(t *testing.T, d *device, is4 bool) int {
	for i := range d.numGIDs() {
		if d.gidAt(i).Addr().Is4() == is4 {
			return i
		}
	}
	require.FailNow(t, "no such GID")
	return 0
}

// TestGIDTable: a device with the addresses of both families lists them all, the configured one
// first, on one port, and refuses indexes beyond.
func TestGIDTable(t *testing.T) {
	for _, first := range []netip.Addr{loopback, loopback6} {
		p := bothFamilies(t, first)
		e := newEnd(t, p, verbs.UD, 64)
		d := e.device()
		port, err := e.c.Port(1)
		require.NoError(t, err)
		require.GreaterOrEqual(t, port.GIDs, 2)
		seen := map[verbs.GID]bool{}
		for i := range port.GIDs {
			g, err := e.c.GID(1, i)
			require.NoError(t, err)
			require.False(t, seen[g], "%v twice", g.Addr())
			seen[g] = true
			require.Equal(t, port.LID, d.sockets[i].LID())
		}
		require.True(t, seen[verbs.GIDOf(loopback)] && seen[verbs.GIDOf(loopback6)])
		require.Equal(t, verbs.GIDOf(first), d.gid)
		for _, i := range []int{-1, port.GIDs} {
			_, err = e.c.GID(1, i)
			refused(t, err, ucs.ErrInvalid, "gid")
			_, err = e.pd.CreateAH(verbs.AHAttr{DGID: d.gid, DLID: d.lid, Port: 1, SGIDIndex: i})
			refused(t, err, ucs.ErrInvalid, "SGIDIndex")
		}
		_, err = e.pd.CreateAH(verbs.AHAttr{DGID: d.gid, DLID: d.lid, Port: 1, SGIDIndex: gidOf(t, d, !first.Is4())})
		refused(t, err, ucs.ErrUnreachable, "peer")
	}
}

// TestGIDsRC: queue pairs of one device use GIDs of both families at once, and each packet goes
// between the addresses of its queue pair.
func TestGIDsRC(t *testing.T) {
	p := bothFamilies(t, loopback)
	a, b := newEnd(t, p, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
	for _, is4 := range []bool{true, false} {
		for _, e := range [][2]*end{{a, b}, {b, a}} {
			d := e[1].device()
			i := gidOf(t, d, is4)
			require.NoError(t, e[0].qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
			require.NoError(t, verbs.ConnectRC(e[0].qp, verbs.RemoteQP{
				AV:  verbs.AHAttr{DGID: d.gidAt(i), DLID: d.lid, Port: 1, SGIDIndex: gidOf(t, e[0].device(), is4)},
				QPN: e[1].qp.QPN(), MTU: verbs.MTU1024, MaxRdAtomic: 1, PeerFeatures: verbs.PeerGoucx,
			}, verbs.QPAttr{Access: allAccess, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 18, RetryCnt: 7, RNRRetry: 7}))
		}
		b.recv(1, 0, 4096)
		a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 4000)}})
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		require.Equal(t, uint32(4000), b.completion(a).Len)
	}
	require.Zero(t, value(t, b.device(), "device.dropped_source"))

	// The queue pair is of the IPv6 address: what comes to the IPv4 one is not for it.
	q := b.qp.(*qp)
	four := gidOf(t, a.device(), true)
	to, err := a.device().sockets[four].Peer(verbs.GIDOf(loopback), b.device().lid)
	require.NoError(t, err)
	h := packet{Header: wire.Header{Opcode: wire.Acknowledge, DestQP: q.num, PKey: defaultPKey, Syndrome: wire.AckNoCredits}}
	require.True(t, udpLink{a.device()}.sendOne(&route{udp: to}, &h, 0))
	for value(t, b.device(), "device.dropped_source") == 0 {
		b.cq.Poll(nil)
	}
}

// TestGIDsUD: a UD queue pair receives on all GIDs, and replies to a datagram from the one that
// it was sent to.
func TestGIDsUD(t *testing.T) {
	p := bothFamilies(t, loopback)
	a, b, way := datagrams(t, p)
	require.NoError(t, way.Close())
	for _, is4 := range []bool{true, false} {
		i := gidOf(t, b.device(), is4)
		there, err := a.pd.CreateAH(verbs.AHAttr{DGID: b.device().gidAt(i), DLID: b.device().lid, Port: 1, SGIDIndex: gidOf(t, a.device(), is4)})
		require.NoError(t, err)
		closeAtEnd(t, there)
		b.recv(1, 0, 4096)
		wr := verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 8)}, AH: there.ID(), QPN: b.qp.QPN(), QKey: testQKey}
		a.send(wr)
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		w := b.completion(a)
		back, err := b.pd.CreateAHFromWC(1, &w, b.buf[:grhLen])
		require.NoError(t, err)
		closeAtEnd(t, back)
		require.Equal(t, i, back.(*ah).attr.SGIDIndex)
		a.recv(3, 0, 4096)
		wr.AH, wr.QPN, wr.SG[0] = back.ID(), w.SrcQP, b.sge(0, 8)
		b.send(wr)
		require.Equal(t, verbs.WCSuccess, b.completion(a).Status)
		require.Equal(t, uint32(8+grhLen), a.completion(b).Len)
	}
}

// TestSetPort: a device moves to another port while it has no objects, and keeps its port where
// the other is taken.
func TestSetPort(t *testing.T) {
	for _, all := range []bool{false, true} {
		p := New(Config{Link: LinkUDP, Addr: loopback, AllGIDs: all})
		e := newEnd(t, p, verbs.RC, 64)
		err := SetPort(e.c, 0)
		refused(t, err, ucs.ErrBusy, "objects")
		infos, err := p.Devices()
		require.NoError(t, err)
		c, err := p.Open(infos[0])
		require.NoError(t, err)
		d := c.(*device)
		was := d.lid
		require.ErrorContains(t, SetPort(c, e.device().lid), "set port")
		require.Equal(t, was, d.lid)
		require.NoError(t, SetPort(c, 0))
		require.NotEqual(t, was, d.lid)
		port, err := c.Port(1)
		require.NoError(t, err)
		require.Equal(t, d.lid, port.LID)
		require.NoError(t, SetPort(c, d.lid))

		// It works there, background goroutine included.
		f := newEndOn(t, c, verbs.RC, 64)
		f.connect(e)
		e.connect(f)
		e.recv(1, 0, 64)
		f.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8})
		require.Equal(t, verbs.WCSuccess, f.completion(e).Status)
	}
	c := openTest(t, Config{Link: LinkInproc})
	refused(t, SetPort(c, 0), ucs.ErrUnsupported, "UDP")
}

// TestPort4791: a device on the port of RoCEv2 announces LID 0, as rxe and hardware do. A soft
// peer on another port communicates with it; a foreign peer needs port 4791 itself.
func TestPort4791(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	p := New(Config{Link: LinkUDP, Addr: loopback})
	infos, err := p.Devices()
	require.NoError(t, err)
	c, err := p.Open(infos[0])
	require.NoError(t, err)
	require.NoError(t, SetPort(c, wire.Port))
	port, err := c.Port(1)
	require.NoError(t, err)
	require.Zero(t, port.LID)

	a, b := newEndOn(t, c, verbs.RC, 4096), newEnd(t, p, verbs.RC, 4096)
	a.connect(b)
	b.connect(a)
	for _, e := range [][2]*end{{a, b}, {b, a}} {
		e[1].recv(1, 0, 4096)
		e[0].send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{e[0].sge(0, 3000)}})
		require.Equal(t, verbs.WCSuccess, e[0].completion(e[1]).Status)
		require.Equal(t, uint32(3000), e[1].completion(e[0]).Len)
	}
	to := verbs.AHAttr{DGID: verbs.GIDOf(loopback), Port: 1}
	_, err = b.pd.CreateAH(to)
	refused(t, err, ucs.ErrInvalid, "set its port to 4791")
	h, err := a.pd.CreateAH(to)
	require.NoError(t, err)
	require.NoError(t, h.Close())
	to.PeerFeatures = verbs.PeerGoucx
	h, err = b.pd.CreateAH(to)
	require.NoError(t, err)
	assert.NoError(t, h.Close())
}
