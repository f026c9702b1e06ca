package rc

import (
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/transports/internal/conn"
	"github.com/goucx/goucx/transports/internal/nic"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/protocol"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/wireup/machine"
)

// stranger sends what it likes from the queue pair of an interface, which answers
// nothing meanwhile.
type stranger struct {
	*end
	to peer
	ah verbs.AH
}

func newStranger(t *testing.T, e, to *end) *stranger {
	s := &stranger{end: e, to: to.self}
	ah, err := e.pd.CreateAH(e.d.AH(e.port, &to.self.port))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, ah.Close()) })
	s.ah = ah
	return s
}

// hello asks for a connection in the name of an interface.
func (s *stranger) hello(from peer, conn uint64) {
	u := &s.ud
	for u.full() { // what comes meanwhile is lost
		u.recvCQ.Poll(u.wcs[:])
	}
	s.as(from, &connMsg{msg: machine.Msg{Kind: machine.MsgOpen, Worker: from.iface.worker, From: conn, Pair: 3}, qpInfo: qpInfo{qpn: 77, psn: 1}})
}

func (s *stranger) as(from peer, n *connMsg) {
	self := s.self
	s.self = from
	s.sendConnMsg(n, &s.to, s.ah)
	s.self = self
}

// thirdParty is a socket that counts what comes.
type thirdParty struct{ *net.UDPConn }

func newThirdParty(t *testing.T) thirdParty {
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(local, 0)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return thirdParty{c}
}

// came is how many datagrams have come.
func (p thirdParty) came(t *testing.T) (n int) {
	raw, err := p.SyscallConn()
	require.NoError(t, err)
	var b [4096]byte
	require.NoError(t, raw.Control(func(fd uintptr) {
		for {
			if _, _, err := unix.Recvfrom(int(fd), b[:], unix.MSG_DONTWAIT); err != nil {
				return
			}
			n++
		}
	}))
	return n
}

// address is where it would be found as a device.
func (p thirdParty) address() nic.PortAddress {
	at := p.LocalAddr().(*net.UDPAddr).AddrPort()
	return nic.PortAddress{GID: verbs.GIDOf(at.Addr()), LID: at.Port()}
}

// TestHelloInTheNameOfAnother: what names an address that it did not come from has no
// answer, whatever part of the address is wrong.
func TestHelloInTheNameOfAnother(t *testing.T) {
	set := settingsOf(t, "UCX_RC_CONNECT_RETRY=1ms", "UCX_RC_CONNECT_TIMEOUT=30ms")
	c := Component(loopback)
	a, b := newEndWith(t, c, 1, set), newEndWith(t, c, 2, set)
	third := newThirdParty(t)
	s := newStranger(t, a, b)
	for name, forge := range map[string]func(*peer){
		"port":       func(p *peer) { p.port.LID = third.address().LID },
		"address":    func(p *peer) { p.port.GID = verbs.GIDOf(netip.MustParseAddr("127.0.0.77")) },
		"queue pair": func(p *peer) { p.iface.qpn++ },
	} {
		t.Run(name, func(t *testing.T) {
			a.inside(func() {
				from := a.self
				forge(&from)
				from = peerAt(&nic.Address{Port: from.port, Seg: from.iface.seg, Worker: from.iface.worker, QPN: from.iface.qpn})
				was, garbage := b.stats.Value(statConnMsgs), b.stats.Value(statGarbage)
				s.hello(from, rand.Uint64()|1)
				until(t, func() bool { return b.stats.Value(statGarbage) != garbage || b.stats.Value(statConnMsgs) >= was+8 }, b)
				require.Equal(t, was, b.stats.Value(statConnMsgs), "sent to whom asked nothing")
				require.True(t, b.alone())
				for _, k := range []machine.MsgKind{machine.MsgMigrate, machine.MsgClose, machine.MsgReady} { // of no connection
					garbage = b.stats.Value(statGarbage)
					s.as(from, &connMsg{msg: machine.Msg{Kind: k, Worker: from.iface.worker, From: 5, To: 7}})
					until(t, func() bool { return b.stats.Value(statGarbage) != garbage || b.stats.Value(statConnMsgs) != was }, b)
				}
				require.Equal(t, was, b.stats.Value(statConnMsgs), "sent to whom asked nothing")
			})
		})
	}
	require.Zero(t, third.came(t))
}

// TestSilentHello: a peer that shows no sign of life gets three accepts and nothing else.
func TestSilentHello(t *testing.T) {
	set := settingsOf(t, "UCX_RC_CONNECT_RETRY=1ms", "UCX_RC_CONNECT_TIMEOUT=30ms")
	c := Component(loopback)
	a, b := newEndWith(t, c, 1, set), newEndWith(t, c, 2, set)
	s := newStranger(t, a, b)
	a.inside(func() {
		s.hello(a.self, 5)
		until(t, func() bool { return b.stats.Value(statAccepted) == 1 }, b)
		until(t, b.alone, b)
		require.EqualValues(t, 3, b.stats.Value(statConnMsgs))
		// Others that name the same interface do not have it asked for the first.
		for i := range uint64(40) {
			s.hello(a.self, 7+2*i)
		}
		until(t, func() bool { return b.stats.Value(statAccepted) == 41 }, b)
		until(t, b.alone, b)
		require.EqualValues(t, 3*41, b.stats.Value(statConnMsgs))
	})
}

// TestNameOfAnotherPeer: a stranger that gives itself the name of a peer does not get the
// endpoint that is open to that peer.
func TestNameOfAnotherPeer(t *testing.T) {
	c := Component(loopback)
	a, b, honest := newEnd(t, c, 1), newEnd(t, c, 2), newEnd(t, c, 3)
	to, err := b.NewEndpoint(honest.address())
	require.NoError(t, err)
	want, forged := honest.self.address(), a.self.address()
	name, mine := want.Name(), forged.Name()
	for i := range forged.Worker {
		forged.Worker[i] ^= name[i] ^ mine[i]
	}
	require.EqualValues(t, honest.self.iface.name, forged.Name())
	s := newStranger(t, a, b)
	a.inside(func() {
		s.hello(peerAt(&forged), 5)
		until(t, func() bool { return b.stats.Value(statAccepted) == 1 }, b)
		b.inside(func() { require.Equal(t, machine.StateIdle, to.(*ep).M.State()) })
	})
	until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, b, honest)
	until(t, func() bool { return len(honest.got) == 1 }, b, honest)
}

// TestHelloFlood: connections that nobody confirms are few and cost little, and a peer
// that means it connects meanwhile, also where the list of them is full. The flood is one
// of 10,000 hellos a second: a faster one overflows the receives, and the hellos of the
// honest peer are lost with most others, for as many retries as chance has it.
func TestHelloFlood(t *testing.T) {
	c := Component(loopback)
	a, b, honest := newEnd(t, c, 1), newEnd(t, c, 2), newEnd(t, Component(loopback), 3)
	s := newStranger(t, a, b)
	a.inside(func() {
		conn, began := uint64(1), ucs.Now()
		next := began
		flood := func() {
			now := ucs.Now()
			for n := 0; next <= now && n < 16; n++ {
				next = next.Add(time.Second / 10_000)
				s.hello(a.self, conn)
				conn += 2
			}
			next = max(next, now) // a process that did not run sends fewer
		}
		until(t, func() bool { flood(); return b.stats.Value(statOpensDropped) > 100 }, b)
		spans := 1 + int(ucs.Now().Sub(began)/time.Second) // in each as many as are half-open
		require.LessOrEqual(t, int(b.stats.Value(statAccepted)), 256*spans)
		b.inside(func() {
			require.LessOrEqual(t, b.halfOpen.Len(), 256)
			require.Equal(t, b.halfOpen.Len(), b.numQPs)
			require.Equal(t, 4*b.depth, b.sendDepth, "no room for completions of what cannot send")
		})
		require.Zero(t, b.Active(), "none of them counts as live")
		before := ucs.Now()
		to, err := honest.NewEndpoint(b.address())
		require.NoError(t, err)
		until(t, func() bool { flood(); return to.AMUint64(1, 2, 3) == ucs.OK }, b, honest)
		until(t, func() bool { flood(); return len(b.got) == 1 }, b, honest)
		require.Less(t, ucs.Now().Sub(before), 10*time.Second) // milliseconds, where the machine is idle
		require.Equal(t, 1, b.Active())
		to.Close()
		until(t, honest.alone, b, honest)
		require.Empty(t, honest.failures)
	})
}

// TestHalfOpenGiveUp: the oldest goes for a new one, with all that it holds.
func TestHalfOpenGiveUp(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	s := newStranger(t, a, b)
	a.inside(func() {
		for i := range uint64(2) {
			s.hello(a.self, 5+2*i)
			until(t, func() bool { return b.stats.Value(statAccepted) == i+1 }, b)
		}
		b.inside(func() {
			e := b.byRemoteID[remoteID{a.self.iface.name, 5}]
			require.True(t, e.M.HalfOpen())
			b.evictHalfOpen(e)
			require.Equal(t, conn.Released, e.Life)
			require.Len(t, b.byLocalID, 1)
			require.Len(t, b.byRemoteID, 1)
			require.Equal(t, 1, b.numQPs)
			require.EqualValues(t, 1, b.ActiveEndpoints())
		})
		s.hello(a.self, 5) // and may come again
		until(t, func() bool { return b.stats.Value(statAccepted) == 3 }, b)
	})
	require.Empty(t, b.failures)
}

// TestEndpointOnHalfOpen: an endpoint that is opened on a connection which is not
// confirmed yet keeps it.
func TestEndpointOnHalfOpen(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	s := newStranger(t, a, b)
	a.inside(func() {
		s.hello(a.self, 5)
		until(t, func() bool { return b.stats.Value(statAccepted) == 1 }, b)
		_, err := b.NewEndpoint(uct.Address{Device: a.DeviceAddress(nil), Iface: a.Address(nil)})
		require.NoError(t, err)
		b.inside(func() { require.Zero(t, b.halfOpen.Len()) })
	})
}

// noise sends a datagram of n bytes that is no connection message, and asks for no event.
func (s *stranger) noise(t *testing.T, n int) {
	u := &s.ud
	for u.full() {
		u.recvCQ.Poll(u.wcs[:])
	}
	i := u.next % udSends
	w := verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled, NumSG: 1, QPN: s.to.iface.qpn, QKey: s.to.iface.qkey, AH: s.ah.ID()}
	w.SG[0] = u.tx.SGE(i, n)
	k, _ := u.qp.PostSend([]verbs.SendWR{w})
	require.Equal(t, 1, k)
	u.inFlight[i] = true
	u.next++
}

// TestLongDatagram: a datagram that is longer than any connection message is dropped, and
// the queue pair goes on.
func TestLongDatagram(t *testing.T) {
	c := Component(loopback)
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	s := newStranger(t, a, b)
	a.inside(func() {
		for _, n := range []int{connMsgMaxLen + 1, 1024, b.self.port.MTU.Bytes()} {
			garbage := b.stats.Value(statGarbage)
			s.noise(t, n)
			until(t, func() bool { return b.stats.Value(statGarbage) == garbage+1 }, b)
		}
	})
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
}

// TestNoiseWhileAsleep: datagrams that ask for no event do not fill the receives of a
// program that sleeps or computes. A peer connects meanwhile.
func TestNoiseWhileAsleep(t *testing.T) {
	c := Component(loopback)
	a, b, honest := newEnd(t, c, 1), newEnd(t, c, 2), newEnd(t, Component(loopback), 3)
	s := newStranger(t, a, b)
	a.inside(func() {
		for range 3 * udRecvs {
			s.noise(t, 100)
		}
	})
	to, err := honest.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, honest)
}

// raw sends the bytes of a connection message in the name of a.
func (s *stranger) raw(t *testing.T, n *connMsg, spoil func([]byte)) {
	u := &s.ud
	for u.full() {
		u.recvCQ.Poll(u.wcs[:])
	}
	i := u.next % udSends
	n.from = s.self
	b := n.append(u.tx.Bytes(i)[:0])
	spoil(b)
	nic.AppendChecksum(b[:len(b)-connMsgSumLen], 0)
	w := verbs.SendWR{ID: uint64(i), Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendSolicited, NumSG: 1, QPN: s.to.iface.qpn, QKey: s.to.iface.qkey, AH: s.ah.ID()}
	w.SG[0] = u.tx.SGE(i, len(b))
	k, _ := u.qp.PostSend([]verbs.SendWR{w})
	require.Equal(t, 1, k)
	u.inFlight[i] = true
	u.next++
}

// TestOtherVersion: an OPEN that cannot be read gets REJECT, and the initiator's endpoint fails at
// once, by an error that names both versions, or the feature.
func TestOtherVersion(t *testing.T) {
	c := Component(loopback)
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	s := newStranger(t, a, b)
	version := func(b []byte) { b[connMsgOffVersion]++ }
	feature := func(bit byte) func([]byte) { return func(b []byte) { b[connMsgOffFeatures] = 1 << bit } }
	for name, spoil := range map[string]func([]byte){"version": version, "feature": feature(2)} {
		t.Run("OPEN of another "+name, func(t *testing.T) {
			a.inside(func() {
				refused := b.stats.Value(statRefused)
				s.raw(t, &connMsg{msg: machine.Msg{Kind: machine.MsgOpen, Worker: a.worker, From: 5, Pair: 3}, qpInfo: qpInfo{qpn: 77, psn: 1}}, spoil)
				until(t, func() bool { return b.stats.Value(statRefused) == refused+1 }, b)
				require.True(t, b.alone())
				var reply connMsg
				until(t, func() bool {
					if a.ud.recvCQ.Poll(a.ud.wcs[:1]) != 1 {
						return false
					}
					wc := &a.ud.wcs[0]
					require.NoError(t, a.parseConnMsg(&reply, wc))
					return true
				})
				require.Equal(t, machine.MsgReject, reply.msg.Kind)
				require.EqualValues(t, 5, reply.msg.To)
				require.Equal(t, name == "feature", reply.refused == 1<<2)
			})
		})
	}
	t.Run("optional feature", func(t *testing.T) {
		a.inside(func() {
			s.raw(t, &connMsg{msg: machine.Msg{Kind: machine.MsgOpen, Worker: a.worker, From: 7, Pair: 3}, qpInfo: qpInfo{qpn: 77, psn: 1}}, feature(7))
			until(t, func() bool { return b.stats.Value(statAccepted) == 1 }, b)
		})
	})
	for name, r := range map[string]struct {
		spoil   func([]byte)
		refused protocol.Features
		want    string
	}{
		"version":         {version, 0, "connection message of rc has version 4, this program knows version 3"},
		"feature":         {feature(0), 0, "connection message of rc of version 3 requires feature 0, which this program (version 3) does not know"},
		"refused feature": {feature(7), 1 << 1, "connection message of rc of version 3 requires feature 1, which the peer (version 3) does not know"},
	} {
		t.Run("REJECT, "+name, func(t *testing.T) {
			honest := newEnd(t, c, 3)
			s := newStranger(t, a, honest)
			to, err := honest.NewEndpoint(a.address())
			require.NoError(t, err)
			a.inside(func() { // a replies nothing
				require.Equal(t, ucs.NoResource, to.AMUint64(1, 2, 3))
				m := machine.Msg{Kind: machine.MsgReject, Worker: a.worker, From: 9, To: to.(*ep).M.Conn()}
				s.raw(t, &connMsg{msg: m, refused: r.refused}, r.spoil)
				until(t, func() bool { return len(honest.failures) == 1 }, honest)
			})
			require.True(t, honest.failures[0].NeverConnected)
			require.ErrorIs(t, honest.failures[0].Err, ucs.ErrUnsupported)
			require.ErrorContains(t, honest.failures[0].Err, r.want)
		})
	}
}
