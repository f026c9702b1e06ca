package soft

import (
	"encoding/binary"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// flowCapture reads the IPv6 flow labels of the UDP packets to a port from a packet socket.
type flowCapture struct {
	t  *testing.T
	fd int
}

func captureFlows(t *testing.T) *flowCapture {
	t.Helper()
	proto := binary.NativeEndian.Uint16([]byte{0x86, 0xdd})
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, int(proto))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unix.Close(fd)) })
	return &flowCapture{t, fd}
}

// labels returns the labels of the packets since the last call, by destination port.
func (c *flowCapture) labels() map[uint16]map[uint32]int {
	all := make(map[uint16]map[uint32]int)
	b := make([]byte, 1<<16)
	for {
		n, err := unix.Read(c.fd, b)
		if err == unix.EAGAIN {
			return all
		}
		require.NoError(c.t, err)
		if n < wire.IPv6Len+wire.UDPLen || b[6] != unix.IPPROTO_UDP {
			continue
		}
		port := binary.BigEndian.Uint16(b[wire.IPv6Len+2:])
		if all[port] == nil {
			all[port] = make(map[uint32]int)
		}
		all[port][binary.BigEndian.Uint32(b)&0xfffff]++
	}
}

// TestFlowLabel: the packets of a queue pair and of an address handle have the flow label of
// their address on the wire, 0 included, in segment batches too. The receiver's GRH shows it.
func TestFlowLabel(t *testing.T) {
	if !suitetest.InOwnNetwork(t) {
		return
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		require.NoError(t, err, "%s", out)
	}
	p := New(Config{Link: LinkUDP, Addr: loopback6, Engine: EngineInline})
	flows := captureFlows(t)
	a, b := newEnd(t, p, verbs.RC, 1<<16), newEnd(t, p, verbs.RC, 1<<16)
	for _, label := range []uint32{0, 1, 0xabcde, 0xfffff} {
		for _, e := range [][2]*end{{a, b}, {b, a}} {
			require.NoError(t, e[0].qp.Modify(&verbs.QPAttr{State: verbs.StateReset}, verbs.AttrState))
			d := e[1].device()
			require.NoError(t, verbs.ConnectRC(e[0].qp, verbs.RemoteQP{
				AV:  verbs.AHAttr{DGID: d.gid, DLID: d.lid, Port: 1, FlowLabel: label, TrafficClass: 0x68},
				QPN: e[1].qp.QPN(), MTU: verbs.MTU1024, MaxRdAtomic: 1, PeerFeatures: verbs.PeerGoucx,
			}, verbs.QPAttr{Access: allAccess, MaxRdAtomic: 1, MinRNRTimer: 1, Timeout: 18, RetryCnt: 7, RNRRetry: 7}))
		}
		flows.labels()
		for _, n := range []int{8, 1 << 16} {
			b.recv(1, 0, 1<<16)
			a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, n)}})
			require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
			require.Equal(t, uint32(n), b.completion(a).Len)
		}
		got := flows.labels()
		for _, e := range []*end{a, b} {
			require.Len(t, got[e.device().lid], 1, "label %#x: %v", label, got)
			require.NotZero(t, got[e.device().lid][label])
		}
	}

	// A datagram, and the reply to its sender.
	x, y, way := datagrams(t, p)
	require.NoError(t, way.Close())
	h, err := x.pd.CreateAH(verbs.AHAttr{DGID: y.device().gid, DLID: y.device().lid, Port: 1, FlowLabel: 0x12345})
	require.NoError(t, err)
	closeAtEnd(t, h)
	y.recv(1, 0, 64)
	x.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 4, AH: h.ID(), QPN: y.qp.QPN(), QKey: testQKey})
	w := y.completion(x)
	n, ok := wire.GRH(y.buf[:grhLen]).Network()
	require.True(t, ok)
	require.Equal(t, uint32(0x12345), n.FlowLabel)
	back, err := y.pd.CreateAHFromWC(1, &w, y.buf[:grhLen])
	require.NoError(t, err)
	closeAtEnd(t, back)
	require.Equal(t, uint32(0x12345), back.(*ah).attr.FlowLabel)

	// Many labels on one socket, also beyond those that the kernel leases to one.
	for label := uint32(1); label < 100; label++ {
		h, err := x.pd.CreateAH(verbs.AHAttr{DGID: y.device().gid, DLID: y.device().lid, Port: 1, FlowLabel: label})
		require.NoError(t, err)
		require.NoError(t, h.Close())
	}

	// A label that another program has for itself is refused by name.
	other, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(other)) }()
	lease := make([]byte, 32)
	lease[15], lease[19], lease[21], lease[22] = 1, 0xf0, 1, 1 // to ::1, exclusive, create
	require.NoError(t, unix.SetsockoptString(other, unix.IPPROTO_IPV6, 32, string(lease)))
	_, err = x.pd.CreateAH(verbs.AHAttr{DGID: y.device().gid, DLID: y.device().lid, Port: 1, FlowLabel: 0xf0})
	require.ErrorContains(t, err, "flow label 0xf0 belongs to another program")
	require.NotErrorIs(t, err, ucs.ErrInvalid)
}
