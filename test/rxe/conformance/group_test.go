//go:build linux && cgo && ibverbs

package conformance

import (
	"bytes"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/ibv"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/verbs/wire"
)

// groupVar names a network namespace, and addresses of it on which soft devices reach the device under
// test: "/run/netns/peer 10.77.0.2 fd77::2". Without it TestGroup is skipped.
const groupVar = "GOUCX_IBV_GROUP_PEER"

const (
	groupKey = 0x1234
	grhArea  = wire.GRHLen
)

// groupMember is a datagram queue pair in a multicast group.
type groupMember struct {
	t     *testing.T
	pd    verbs.PD
	cq    verbs.CQ
	qp    verbs.QP
	mr    verbs.MR
	buf   []byte
	ah    verbs.AH
	addr  netip.Addr
	index int // of the GID
}

// newGroupMember makes a member on a device, from the GID with an address of the family of group.
func newGroupMember(t *testing.T, c verbs.Context, group verbs.GID) *groupMember {
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	e := &groupMember{t: t, buf: make([]byte, 4096)}
	closes := func(o interface{ Close() error }, err error) {
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, o.Close()) })
	}
	port, err := c.Port(1)
	require.NoError(t, err)
	for e.index = range port.GIDs {
		g, err := c.GID(1, e.index)
		require.NoError(t, err)
		if e.addr = g.Addr(); !e.addr.IsLinkLocalUnicast() && !e.addr.IsUnspecified() && e.addr.Is4() == group.Addr().Is4() {
			break
		}
	}
	e.pd, err = c.AllocPD()
	closes(e.pd, err)
	e.cq, err = c.CreateCQ(verbs.CQConfig{Depth: 16})
	closes(e.cq, err)
	e.mr, err = e.pd.Register(e.buf, verbs.MRConfig{Access: verbs.LocalWrite})
	closes(e.mr, err)
	e.qp, err = e.pd.CreateQP(verbs.QPConfig{Type: verbs.UD, SendCQ: e.cq, RecvCQ: e.cq, Caps: verbs.QPCaps{MaxSend: 4, MaxRecv: 4, MaxSendSGE: 1, MaxRecvSGE: 1}})
	closes(e.qp, err)
	require.NoError(t, verbs.StartUD(e.qp, verbs.QPAttr{Port: 1, QKey: groupKey}))
	e.ah, err = e.pd.CreateAH(verbs.AHAttr{DGID: group, Port: 1, SGIDIndex: e.index, HopLimit: 1})
	closes(e.ah, err)
	require.NoError(t, verbs.AttachMulticast(e.qp, group))
	t.Cleanup(func() { require.NoError(t, verbs.DetachMulticast(e.qp, group)) })
	return e
}

func (e *groupMember) sge(off, n int) [verbs.MaxSGE]verbs.SGE {
	return [verbs.MaxSGE]verbs.SGE{{Addr: e.mr.Addr() + uint64(off), Len: uint32(n), LKey: e.mr.LKey()}}
}

// completes waits for the next completion of the member while both poll.
func (e *groupMember) completes(what string) verbs.WC {
	e.t.Helper()
	var wc [1]verbs.WC
	for end := time.Now().Add(10 * time.Second); e.cq.Poll(wc[:]) == 0; runtime.Gosched() {
		require.True(e.t, time.Now().Before(end), what)
	}
	require.Equal(e.t, verbs.WCSuccess, wc[0].Status, what)
	return wc[0]
}

// reaches sends n bytes to the group, which the other member receives.
func (e *groupMember) reaches(o *groupMember, group verbs.GID, n int) {
	for i := range n {
		e.buf[i] = byte(i + n)
	}
	want := slices.Clone(e.buf[:n])
	clear(o.buf)
	k, st := o.qp.PostRecv([]verbs.RecvWR{{ID: 1, NumSG: 1, SG: o.sge(0, 4096)}})
	require.Equal(e.t, ucs.OK, st)
	require.Equal(e.t, 1, k)
	k, st = e.qp.PostSend([]verbs.SendWR{{
		ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: e.sge(0, n), QPN: verbs.MulticastQPN, QKey: groupKey, AH: e.ah.ID(),
	}})
	require.Equal(e.t, ucs.OK, st)
	require.Equal(e.t, 1, k)
	e.completes("the send")
	w := o.completes("the receive")
	require.Equal(e.t, [2]uint32{uint32(grhArea + n), uint32(e.qp.QPN())}, [2]uint32{w.Len, uint32(w.SrcQP)})
	require.True(e.t, bytes.Equal(want, o.buf[grhArea:][:n]), "the bytes")
	h, ok := wire.GRH(o.buf).Network()
	require.True(e.t, ok)
	require.Equal(e.t, [2]netip.Addr{e.addr, group.Addr()}, [2]netip.Addr{h.Src.Addr(), h.Dst.Addr()})
}

// joinIP makes the host receive the datagrams to a group on the interface with an address, as librdmacm has it
// for devices of the kernel.
func joinIP(t *testing.T, group, addr netip.Addr) {
	all, err := net.Interfaces()
	require.NoError(t, err)
	for i := range all {
		addrs, err := all[i].Addrs()
		require.NoError(t, err)
		if !slices.ContainsFunc(addrs, func(a net.Addr) bool { return strings.HasPrefix(a.String(), addr.String()+"/") }) {
			continue
		}
		c, err := net.ListenMulticastUDP("udp", &all[i], &net.UDPAddr{IP: group.AsSlice()})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return
	}
	require.Fail(t, "no interface has the address", "%v", addr)
}

// in calls f in a network namespace.
func in(t *testing.T, namespace string, f func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	defer func() { require.NoError(t, own.Close()) }()
	other, err := os.Open(namespace)
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	require.NoError(t, unix.Setns(int(other.Fd()), unix.CLONE_NEWNET))
	defer func() { require.NoError(t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)) }()
	f()
}

// opens opens the device of a provider that is wanted.
func opens(t *testing.T, p verbs.Provider, wanted func(verbs.DeviceInfo) bool) verbs.Context {
	infos, err := p.Devices()
	require.NoError(t, err)
	i := slices.IndexFunc(infos, wanted)
	require.GreaterOrEqual(t, i, 0, "%v", infos)
	c, err := p.Open(infos[i])
	require.NoError(t, err)
	return c
}

// TestGroup: a soft device and one of the kernel are in one multicast group, and each gets what the other one
// sends.
func TestGroup(t *testing.T) {
	peer := strings.Fields(os.Getenv(groupVar))
	if len(peer) < 2 {
		t.Skip("no peer in another namespace: " + groupVar + " is not set")
	}
	for _, addr := range peer[1:] {
		t.Run(addr, func(t *testing.T) {
			group := verbs.GIDOf(netip.MustParseAddr("239.77.85.3"))
			if strings.Contains(addr, ":") {
				group = verbs.GIDOf(netip.MustParseAddr("ff15::77:85:3"))
			}
			a := newGroupMember(t, opens(t, ibv.New(ibv.Config{}), func(d verbs.DeviceInfo) bool { return d.Name == os.Getenv(deviceVar) }), group)
			joinIP(t, group.Addr(), a.addr)
			var b *groupMember
			in(t, peer[0], func() {
				p := soft.New(soft.Config{Link: soft.LinkUDP, Addr: netip.MustParseAddr(addr)})
				b = newGroupMember(t, opens(t, p, func(verbs.DeviceInfo) bool { return true }), group)
			})
			for _, n := range []int{0, 1, 100, 1000} {
				b.reaches(a, group, n)
				a.reaches(b, group, n)
			}
		})
	}
}
