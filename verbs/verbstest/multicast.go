package verbstest

import (
	"crypto/rand"
	"net/netip"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// Multicast: a datagram to a group reaches every queue pair that is attached to it, but not its
// sender.
var multicastCases = []testCase{
	{"members", 0, multicastMembers},
	{"header-area", 0, multicastHeaderArea},
	{"own-device", 0, multicastOwnDevice},
	{"detach", 0, multicastDetach},
	{"no-member", 0, multicastNoMember},
	{"groups", 0, multicastGroups},
	{"wrong-qkey", 0, multicastWrongQKey},
	{"reply", 0, multicastReply},
	{"refused", 0, multicastRefused},
	{"again", 0, multicastAgain},
	{"busy", 0, multicastBusy},
	{"limits", 0, multicastLimits},
	{"faults", Packets, multicastFaults},
}

// groupSpace are random bytes of the groups' addresses, so that the suites of several processes
// of a host do not share groups.
var groupSpace = func() (b [2]byte) {
	_, _ = rand.Read(b[:]) // never fails
	return b
}()

// group is an address of a group, of the device's address family.
func (e *env) group(n byte) verbs.GID {
	if e.sides[0].gid.Addr().Is4() {
		return verbs.GIDOf(netip.AddrFrom4([4]byte{239, groupSpace[0], groupSpace[1], n}))
	}
	return verbs.GID{0: 0xff, 1: 0x15, 13: groupSpace[0], 14: groupSpace[1], 15: n}
}

// attach makes a queue pair a member of a group, until the end of the case.
func (q *qp) attach(group verbs.GID) {
	q.env.Helper()
	q.env.unlessSupported(verbs.AttachMulticast(q.QP, group), "multicast")
	q.env.Cleanup(func() { _ = verbs.DetachMulticast(q.QP, group) })
}

// groupAH addresses a group from the first side.
func (e *env) groupAH(group verbs.GID) verbs.AH {
	e.Helper()
	p := e.sides[0].port
	ah, err := e.sides[0].pd.CreateAH(verbs.AHAttr{DGID: group, SGIDIndex: p.GIDIndex, Port: 1, HopLimit: 1, PeerFeatures: p.PeerFeatures})
	e.unlessSupported(err, "an address handle of a group")
	e.closes("ah", ah.Close)
	return ah
}

// toGroup is a datagram of n bytes from the first end to a group.
func (d *duo) toGroup(id uint64, ah verbs.AH, n int) verbs.SendWR {
	w := request(id, verbs.OpSend, d.am.sge(0, n))
	w.QPN, w.QKey, w.AH = verbs.MulticastQPN, d.b.qkey, ah.ID()
	return w
}

// casts sends n bytes to a group; all of want get them, none of the others does.
func (d *duo) casts(ah verbs.AH, n int, want []*qp, others ...*qp) {
	d.Helper()
	text := append([]byte{}, d.am.fill(n, byte(n))...)
	for i, q := range append(append([]*qp{}, want...), others...) {
		q.receive(uint64(i), d.memOf(q).sge(8192*(i+1), 8192))
	}
	d.a.send(d.toGroup(1, ah, n))
	d.a.sent(1)
	for i, q := range want {
		w := q.received(uint64(i))
		require.EqualValues(d, n+grhArea, w.Len)
		require.Equal(d, d.a.QPN(), w.SrcQP)
		require.Equal(d, text, d.memOf(q).buf[8192*(i+1)+grhArea:][:n])
	}
	d.settle()
	for _, q := range append(append([]*qp{}, want...), others...) {
		q.nothing("a datagram to a group")
	}
}

// memOf is the memory of the side that q belongs to.
func (d *duo) memOf(q *qp) *mem {
	if q.side == d.sides[0] {
		return d.am
	}
	return d.bm
}

// readyUD makes another datagram queue pair of a side.
func (s *side) readyUD() *qp {
	s.env.Helper()
	q := s.qp(defaults(verbs.UD))
	q.ready(nil)
	return q
}

func multicastMembers(e *env) {
	d := e.ud(nil)
	g := e.group(1)
	other, outside := e.sides[1].readyUD(), e.sides[1].readyUD()
	d.b.attach(g)
	other.attach(g)
	ah := e.groupAH(g)
	for _, n := range []int{0, 1, 64, 500, e.sides[0].port.ActiveMTU.Bytes()} {
		d.casts(ah, n, []*qp{d.b, other})
	}
	d.casts(ah, 100, []*qp{d.b, other}, outside)
}

// multicastHeaderArea: the datagram names the group as its destination.
func multicastHeaderArea(e *env) {
	d := e.ud(nil)
	g := e.group(2)
	d.b.attach(g)
	d.b.receive(7, d.bm.sge(0, 200))
	d.a.send(d.toGroup(1, e.groupAH(g), 20))
	d.a.sent(1)
	w := d.b.received(7)
	require.Equal(e, verbs.WCGRH, w.Flags)
	src, dst := d.bm.buf[8:24], d.bm.buf[24:40]
	if g.Addr().Is4() {
		src, dst = d.bm.buf[32:36], d.bm.buf[36:40]
	}
	from, _ := netip.AddrFromSlice(src)
	to, _ := netip.AddrFromSlice(dst)
	require.Equal(e, [2]netip.Addr{e.sides[0].gid.Addr(), g.Addr()}, [2]netip.Addr{from, to})
}

// multicastOwnDevice: other queue pairs of the sender's device receive it, the sender does not.
func multicastOwnDevice(e *env) {
	d := e.ud(nil)
	g := e.group(3)
	local := e.sides[0].readyUD()
	d.a.attach(g)
	local.attach(g)
	d.b.attach(g)
	d.casts(e.groupAH(g), 100, []*qp{d.b, local}, d.a)
}

func multicastDetach(e *env) {
	d := e.ud(nil)
	g := e.group(4)
	other := e.sides[1].readyUD()
	d.b.attach(g)
	other.attach(g)
	ah := e.groupAH(g)
	d.casts(ah, 10, []*qp{d.b, other})
	require.NoError(e, verbs.DetachMulticast(d.b.QP, g))
	d.casts(ah, 11, []*qp{other}, d.b)
	require.NoError(e, verbs.DetachMulticast(other.QP, g))
	e.refused(verbs.DetachMulticast(other.QP, g), "detached already")
	d.a.send(d.toGroup(1, ah, 12))
	d.a.sent(1)
	e.settle()
	other.nothing("detached")
}

// multicastNoMember: a datagram to a group without members is sent all the same.
func multicastNoMember(e *env) {
	d := e.ud(nil)
	d.b.attach(e.group(5))
	ah := e.groupAH(e.group(6))
	for i := range uint64(3) {
		d.a.send(d.toGroup(i, ah, 10))
		d.a.sent(i)
	}
	d.casts(e.groupAH(e.group(5)), 10, []*qp{d.b})
}

// multicastGroups: a queue pair may be in several groups, and receives from no other.
func multicastGroups(e *env) {
	d := e.ud(nil)
	other := e.sides[1].readyUD()
	d.b.attach(e.group(7))
	d.b.attach(e.group(8))
	other.attach(e.group(8))
	d.casts(e.groupAH(e.group(7)), 10, []*qp{d.b}, other)
	d.casts(e.groupAH(e.group(8)), 11, []*qp{d.b, other})
}

func multicastWrongQKey(e *env) {
	d := e.ud(nil)
	g := e.group(9)
	d.b.attach(g)
	ah := e.groupAH(g)
	d.b.receive(7, d.bm.sge(0, 200))
	w := d.toGroup(1, ah, 10)
	w.QKey++
	d.a.send(w)
	d.a.sent(1)
	e.settle()
	d.b.nothing("a wrong key")
	d.a.send(d.toGroup(2, ah, 10))
	d.a.sent(2)
	d.b.received(7)
}

// multicastReply: the sender is addressed from the completion, as that of any datagram.
func multicastReply(e *env) {
	d := e.ud(nil)
	g := e.group(10)
	d.b.attach(g)
	d.b.receive(7, d.bm.sge(0, 200))
	d.a.send(d.toGroup(1, e.groupAH(g), 10))
	d.a.sent(1)
	w := d.b.received(7)
	back, err := e.sides[1].pd.CreateAHFromWC(1, &w, d.bm.buf[:grhArea])
	require.NoError(e, err)
	e.closes("ah", back.Close)
	d.a.receive(5, d.am.sge(1000, 100))
	r := datagram(6, d.a, back, d.bm.sge(500, 8))
	r.QPN = w.SrcQP
	d.b.send(r)
	d.b.sent(6)
	d.a.received(5)
}

// multicastRefused: groups are multicast addresses, and members are queue pairs of datagrams.
func multicastRefused(e *env) {
	d, c := e.ud(nil), e.rc(nil)
	d.b.attach(e.group(11))
	e.refused(verbs.AttachMulticast(d.b.QP, e.sides[0].gid), "an address that is no group")
	require.Error(e, verbs.AttachMulticast(c.b.QP, e.group(11)), "a connected queue pair")
	e.refused(verbs.DetachMulticast(d.b.QP, e.group(12)), "another group")
	q := e.sides[0].in(defaults(verbs.RC), verbs.StateInit, c.b)
	a, mask := q.attr(verbs.StateRTR, c.b)
	a.AV.DGID = e.group(11)
	require.Error(e, q.Modify(a, mask), "a connection to a group")
}

// multicastAgain: a member that is attached twice receives a datagram once, and is detached by one call.
func multicastAgain(e *env) {
	d := e.ud(nil)
	g := e.group(13)
	d.b.attach(g)
	if err := verbs.AttachMulticast(d.b.QP, g); err != nil {
		require.ErrorIs(e, err, ucs.ErrInvalid)
	}
	ah := e.groupAH(g)
	d.casts(ah, 10, []*qp{d.b})
	require.NoError(e, verbs.DetachMulticast(d.b.QP, g))
	d.casts(ah, 10, nil, d.b)
}

// multicastBusy: a member must be detached before it is closed.
func multicastBusy(e *env) {
	d := e.ud(nil)
	g := e.group(14)
	d.b.attach(g)
	e.busy(d.b.Close(), "a queue pair in a group")
	d.casts(e.groupAH(g), 10, []*qp{d.b})
	require.NoError(e, verbs.DetachMulticast(d.b.QP, g))
	require.NoError(e, d.b.Close())
}

func multicastLimits(e *env) {
	d := e.ud(nil)
	d.b.attach(e.group(15))
	require.Positive(e, e.sides[1].Attr().MaxMcastGroups)
	require.Positive(e, e.sides[1].Attr().MaxMcastAttach)
}

// multicastFaults: a datagram to a group that is lost or damaged gets to no member, one that is
// duplicated to each member twice, and a late one to all.
func multicastFaults(e *env) {
	d := e.ud(nil)
	g := e.group(16)
	other := e.sides[1].readyUD()
	d.b.attach(g)
	other.attach(g)
	ah := e.groupAH(g)
	for _, c := range []struct {
		v      Verdict
		copies uint64
	}{{Verdict{Drop: true}, 0}, {Verdict{Corrupt: true}, 0}, {Verdict{Copies: 1}, 2}, {Verdict{Delay: time.Millisecond}, 1}} {
		members := []*qp{d.b, other}
		for _, q := range members {
			q.receive(0, d.bm.sge(0, 200))
			q.receive(1, d.bm.sge(0, 200))
		}
		t := e.watch(func(*seen) Verdict { return c.v })
		d.a.send(d.toGroup(1, ah, 100))
		d.a.sent(1)
		e.settle()
		require.Len(e, t.find(func(s *seen) bool { return s.dest == verbs.MulticastQPN }), 1, "one packet for all members")
		e.fabric.Filter(nil)
		for id := range uint64(2) {
			if id >= c.copies {
				for _, q := range members {
					q.nothing("no copy is left")
				}
				d.a.send(d.toGroup(2, ah, 100))
				d.a.sent(2)
			}
			for _, q := range members {
				require.EqualValues(e, 100+grhArea, q.received(id).Len)
			}
		}
	}
}
