package soft

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/internal/suitetest"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var (
	group4 = verbs.GIDOf(netip.MustParseAddr("239.77.85.2"))
	group6 = verbs.GIDOf(netip.MustParseAddr("ff15::77:85:2"))
)

// ip runs the command ip in the network namespace of the thread and returns its output.
func ip(t *testing.T, args string) string {
	t.Helper()
	out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput()
	require.NoError(t, err, "ip (of iproute2) %s: %s", args, out)
	return string(out)
}

// unlessIPv6 skips the test where the system has no IPv6.
func unlessIPv6(t *testing.T) {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
}

// groupLinks makes two networks that are connected by interfaces a0, in the test's own namespace,
// and b0. It returns a function that calls another one in the namespace of b0.
func groupLinks(t *testing.T) (far func(func())) {
	t.Helper()
	ip(t, "link set lo up")
	runtime.LockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	t.Cleanup(func() { _ = own.Close() })
	require.NoError(t, unix.Unshare(unix.CLONE_NEWNET))
	other, err := os.Open("/proc/thread-self/ns/net")
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })
	require.NoError(t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET))
	ip(t, fmt.Sprintf("link add a0 type veth peer name b0 netns /proc/%d/fd/%d", os.Getpid(), other.Fd()))
	up := func(name string, n int) {
		ip(t, fmt.Sprintf("addr add 10.77.0.%d/24 dev %s", n, name))
		ip(t, fmt.Sprintf("addr add fd77::%d/64 dev %s nodad", n, name))
		ip(t, "link set "+name+" up")
	}
	// The system enables an interface for IPv6 some time after both ends are up.
	ready := func(name string) {
		for end := time.Now().Add(20 * time.Second); !strings.Contains(ip(t, "-6 route show table local dev "+name), "multicast ff00::/8") ||
			!strings.Contains(ip(t, "link show "+name), "state UP"); {
			require.True(t, time.Now().Before(end), "%s is not up", name)
		}
	}
	up("a0", 1)
	far = func(f func()) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.NoError(t, unix.Setns(int(other.Fd()), unix.CLONE_NEWNET))
		defer func() { require.NoError(t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET)) }()
		f()
	}
	far(func() {
		up("b0", 2)
		ready("b0")
	})
	ready("a0")
	runtime.UnlockOSThread()
	return far
}

// onAddr is an end on the device with an address.
func onAddr(t *testing.T, addr string) *end {
	return newUD(t, New(Config{Link: LinkUDP, Addr: netip.MustParseAddr(addr)}))
}

// TestMulticastNetworks: of two networks and two devices of one of them each device in a group gets
// one copy of a datagram, with its hop limit, and no device on another interface gets one.
func TestMulticastNetworks(t *testing.T) {
	unlessIPv6(t)
	if !suitetest.InOwnNetwork(t) {
		return
	}
	far := groupLinks(t)
	for _, f := range []struct {
		name            string
		group           verbs.GID
		near, far, loop string
	}{
		{"IPv4", group4, "10.77.0.1", "10.77.0.2", "127.0.0.1"},
		{"IPv6", group6, "fd77::1", "fd77::2", "::1"},
		{"IPv6 of the link", verbs.GIDOf(netip.MustParseAddr("ff12::77:85:2")), "fd77::1", "fd77::2", "::1"},
	} {
		t.Run(f.name, func(t *testing.T) {
			a, b, loop := onAddr(t, f.near), onAddr(t, f.near), onAddr(t, f.loop)
			var c *end
			far(func() {
				c = onAddr(t, f.far)
				c.attach(f.group)
			})
			for _, e := range []*end{a, b, loop} {
				e.attach(f.group)
			}
			all := []*end{a, b, c, loop}
			for i, hops := range []uint8{0, 1, 5, 64} {
				h := a.groupAH(f.group, hops)
				for _, e := range all {
					e.recv(uint64(i), 0, 4096)
				}
				a.toGroup(h, 100+i)
				require.Equal(t, verbs.WCSuccess, a.completion(all...).Status)
				for _, e := range []*end{b, c} {
					w := e.completion(all...)
					require.Equal(t, uint32(100+i+grhLen), w.Len)
					n, ok := wire.GRH(e.buf).Network()
					require.True(t, ok)
					require.Equal(t, max(1, hops), n.TTL, "the hop limit")
					require.Equal(t, [2]netip.Addr{a.device().gid.Addr(), f.group.Addr()}, [2]netip.Addr{n.Src.Addr(), n.Dst.Addr()})
				}
			}
			var wc [1]verbs.WC
			for range 1000 {
				for i, e := range all {
					n := e.cq.Poll(wc[:])
					require.Empty(t, append(e.got, wc[:n]...), "%d: a second copy, or one of another interface", i)
				}
			}
		})
	}
	e := onAddr(t, "10.77.0.1")
	ip(t, "link del a0")
	refused(t, verbs.AttachMulticast(e.qp, group4), ucs.ErrUnreachable, "a0")
	_, err := e.pd.CreateAH(verbs.AHAttr{DGID: group4, Port: 1})
	refused(t, err, ucs.ErrUnreachable, "a0")
}

// memberEnv is set in a process that is a member of a group.
const memberEnv = "GOUCX_TEST_GROUP_MEMBER"

// TestMulticastProcesses: processes of a host are in one group, and each replies to a datagram.
func TestMulticastProcesses(t *testing.T) {
	if os.Getenv(memberEnv) != "" {
		replyAsMember(t)
		return
	}
	if !suitetest.InOwnNetwork(t) {
		return
	}
	ip(t, "link set lo up")
	for range 2 {
		c := exec.Command("/proc/self/exe", "-test.run=^TestMulticastProcesses$", "-test.count=1")
		c.Env = append(os.Environ(), memberEnv+"=1")
		suitetest.Start(t, c).Says("attached")
	}
	e := onAddr(t, "127.0.0.1")
	for i := range uint64(2) {
		e.recv(i, 2048*int(i), 2048)
	}
	e.toGroup(e.groupAH(group4, 0), 8)
	senders := map[uint16]bool{}
	for len(senders) < 2 {
		if w := e.completion(); w.Op == verbs.WCRecv {
			senders[w.SLID] = true
		}
	}
}

// replyAsMember replies to the first datagram to a group.
func replyAsMember(t *testing.T) {
	e := onAddr(t, "127.0.0.1")
	e.recv(1, 0, 4096)
	e.attach(group4)
	fmt.Println("attached")
	var w verbs.WC
	require.Eventually(t, func() bool {
		var wc [1]verbs.WC
		n := e.cq.Poll(wc[:])
		w = wc[0]
		return n == 1
	}, 30*time.Second, time.Millisecond)
	h, err := e.pd.CreateAHFromWC(1, &w, e.buf[:grhLen])
	require.NoError(t, err)
	closeAtEnd(t, h)
	e.send(verbs.SendWR{
		Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8, QPN: w.SrcQP, QKey: testQKey, AH: h.ID(),
	})
	require.Equal(t, verbs.WCSuccess, e.completion().Status)
}

// TestMulticastRefusedBySystem: what the system refuses is named, with what to do about it. After
// that it works.
func TestMulticastRefusedBySystem(t *testing.T) {
	unlessIPv6(t)
	if !suitetest.InOwnNetwork(t) {
		return
	}
	ip(t, "link set lo up")
	four, six := onAddr(t, "127.0.0.1"), onAddr(t, "::1")
	memberships := func(n string) {
		require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/igmp_max_memberships", []byte(n), 0))
	}
	memberships("0")
	refused(t, verbs.AttachMulticast(four.qp, group4), ucs.ErrNoResource, "net.ipv4.igmp_max_memberships")
	memberships("20")
	refused(t, verbs.AttachMulticast(four.qp, group6), ucs.ErrUnreachable, "family")
	_, err := four.pd.CreateAH(verbs.AHAttr{DGID: group6, Port: 1})
	refused(t, err, ucs.ErrUnreachable, group6.Addr().String())

	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Bind(fd, &unix.SockaddrInet4{Port: wire.Port}))
	refused(t, verbs.AttachMulticast(four.qp, group4), ucs.ErrBusy, "4791")
	require.NoError(t, unix.Close(fd))

	six.attach(group6)
	_, err = six.pd.CreateAH(verbs.AHAttr{DGID: group6, Port: 1})
	refused(t, err, ucs.ErrUnreachable, "ip -6 route add local ff00::/8 dev lo table local")
	ip(t, "-6 route add local ff00::/8 dev lo table local")
	for group, e := range map[verbs.GID]*end{group4: four, group6: six} {
		e.attach(group)
		from := newUD(t, New(Config{Link: LinkUDP, Addr: e.device().gid.Addr()}))
		h, err := from.pd.CreateAH(verbs.AHAttr{DGID: group, Port: 1}) // the members may be foreign
		require.NoError(t, err)
		closeAtEnd(t, h)
		e.recv(1, 0, 4096)
		from.toGroup(h, 8)
		require.Equal(t, uint32(8+grhLen), e.completion(from).Len)
	}
}

// TestMulticastSockets: a device has sockets for the groups that it is in, one for each, and is as
// before when it has left them. Their counters are those of the device.
func TestMulticastSockets(t *testing.T) {
	a, b := newUD(t, udpFixtureProvider()), newUD(t, udpFixtureProvider())
	d := b.device()
	require.False(t, d.manySockets.Load())
	h := a.groupAH(testGroup, 0)
	for range 3 {
		var groups []verbs.GID
		for i := range 20 {
			at := testGroup
			at[15] = byte(10 + i)
			groups = append(groups, at)
			require.NoError(t, verbs.AttachMulticast(b.qp, at))
		}
		require.NoError(t, verbs.AttachMulticast(b.qp, testGroup))
		require.Len(t, d.groups.sockets.Load().All(), 21)
		b.recv(1, 0, 4096)
		a.toGroup(h, 8)
		require.Equal(t, uint32(8+grhLen), b.completion(a).Len)
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		for i, g := range groups {
			require.NoError(t, verbs.DetachMulticast(b.qp, g))
			require.Len(t, d.groups.sockets.Load().All(), 20-i)
		}
		b.recv(1, 0, 4096)
		a.toGroup(h, 9)
		require.Equal(t, uint32(9+grhLen), b.completion(a).Len)
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)

		short := unix.SockaddrInet4{Port: wire.Port, Addr: testGroup.Addr().As4()}
		was := value(t, d, "udp.rx_short")
		require.NoError(t, unix.Sendto(a.device().udp.FD, make([]byte, 5), 0, &short))
		for value(t, d, "udp.rx_short") == was {
			b.cq.Poll(nil)
		}
		require.NoError(t, verbs.DetachMulticast(b.qp, testGroup))
		require.Equal(t, was+1, value(t, d, "udp.rx_short"))
		require.Nil(t, d.groups.sockets.Load())
		require.False(t, d.manySockets.Load())
	}
	for i := range maxMcastGroupsUDP {
		at := testGroup
		at[12], at[15] = 238, byte(i)
		require.NoError(t, verbs.AttachMulticast(b.qp, at))
		t.Cleanup(func() { assert.NoError(t, verbs.DetachMulticast(b.qp, at)) })
	}
	refused(t, verbs.AttachMulticast(b.qp, group4), ucs.ErrNoResource, "256 groups")
	require.Equal(t, maxMcastGroupsUDP, b.c.Attr().MaxMcastGroups)
}

func udpFixtureProvider() *Provider { return New(Config{Link: LinkUDP, Addr: localhost}) }

// TestMulticastWakes: a datagram to a group wakes a device that sleeps, and that slept when its
// queue pair attached.
func TestMulticastWakes(t *testing.T) {
	a, b := newUD(t, udpFixtureProvider()), newUD(t, udpFixtureProvider())
	asleep := func() {
		require.Eventually(t, func() bool { return b.device().own.sleeping.Load() != 0 }, 20*time.Second, time.Millisecond)
	}
	h := a.groupAH(testGroup, 0)
	for range 3 {
		b.recv(1, 0, 4096)
		require.Equal(t, ucs.OK, b.cq.Arm(false))
		asleep()
		require.NoError(t, verbs.AttachMulticast(b.qp, testGroup))
		a.toGroup(h, 8)
		_, err := b.ch.Event(t.Context())
		require.NoError(t, err)
		require.Equal(t, uint32(8+grhLen), b.completion().Len)
		require.NoError(t, verbs.DetachMulticast(b.qp, testGroup))
		a.completion()
	}
}

// TestMulticastReceiveFaults: a packet to a group can be dropped by its receiver.
func TestMulticastReceiveFaults(t *testing.T) {
	var drop atomic.Bool
	var dropped atomic.Int32
	f := Faults{Hook: func(p *PacketInfo) Verdict {
		if p.Received && p.Dest == verbs.MulticastQPN && drop.Load() {
			dropped.Add(1)
			return Verdict{Drop: true}
		}
		return Verdict{}
	}}
	for _, c := range []Config{{Link: LinkUDP, Addr: localhost}, {Link: LinkInproc}} {
		c.Switch, c.Faults = NewSwitch(), &f
		a, b := newUD(t, New(c)), newUD(t, New(c))
		b.attach(b.testGroup())
		h := a.groupAH(b.testGroup(), 0)
		b.recv(1, 0, 4096)
		drop.Store(true)
		a.toGroup(h, 8)
		require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		for dropped.Swap(0) == 0 {
			require.Zero(t, b.cq.Poll(make([]verbs.WC, 1)))
		}
		drop.Store(false)
		a.toGroup(h, 9)
		require.Equal(t, uint32(9+grhLen), b.completion(a).Len)
	}
}

// TestMulticastOwnedQueuePair: a datagram to a group waits for a queue pair that another goroutine
// owns, while others get it.
func TestMulticastOwnedQueuePair(t *testing.T) {
	p := New(Config{Link: LinkUDP, Addr: localhost, Engine: EngineInline})
	a, b := newUD(t, p), newUD(t, p)
	b2 := b.another()
	b2.readyUD()
	for _, e := range []*end{b, b2} {
		e.attach(testGroup)
		e.recv(1, 0, 2048)
	}
	q := b.qp.(*qp)
	q.acquire()
	a.toGroup(a.groupAH(testGroup, 0), 8)
	require.Equal(t, verbs.WCSuccess, a.completion().Status)
	require.Equal(t, b2.qp.QPN(), b.completion().QPN)
	require.Equal(t, int32(1), q.numDeferred.Load())
	q.transmitAndRelease()
	require.Equal(t, q.num, b.completion().QPN)
}

// TestMulticastChecksum: the ICRC of a datagram to a group covers the group's address and port 4791,
// alone and in a segment batch, and a strict receiver accepts it.
func TestMulticastChecksum(t *testing.T) {
	var seen atomic.Int32
	c := Config{Link: LinkUDP, Addr: localhost, ICRC: ICRCStrict}
	a := newUD(t, New(c))
	c.Tap = func(sent bool, h *wire.Network, b []byte) {
		if sent {
			return
		}
		seen.Add(1)
		assert.Equal(t, netip.AddrPortFrom(testGroup.Addr(), wire.Port), h.Dst)
		assert.Equal(t, plainICRC(b, h.Src, h.Dst, h.ID), uint32(b[len(b)-4])|uint32(b[len(b)-3])<<8|uint32(b[len(b)-2])<<16|uint32(b[len(b)-1])<<24)
	}
	b := newUD(t, New(c))
	b.attach(testGroup)
	h := a.groupAH(testGroup, 0)
	for i, n := range []int{1, 2, 20} {
		wrs := make([]verbs.SendWR, n)
		for k := range wrs {
			b.recv(1, 0, 4096)
			wrs[k] = verbs.SendWR{
				Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, 1000*i)},
				QPN: verbs.MulticastQPN, QKey: testQKey, AH: h.ID(),
			}
		}
		got, st := a.qp.PostSend(wrs)
		require.Equal(t, ucs.OK, st)
		require.Equal(t, n, got)
		for range n {
			require.Equal(t, uint32(1000*i+grhLen), b.completion(a).Len)
			require.Equal(t, verbs.WCSuccess, a.completion(b).Status)
		}
	}
	require.Equal(t, int32(23), seen.Load())
	require.Zero(t, value(t, b.device(), "device.dropped_icrc"))
}
