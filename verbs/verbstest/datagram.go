package verbstest

import (
	"encoding/binary"
	"net/netip"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var datagramCases = []testCase{
	{"fields", 0, datagramFields},
	{"immediate", 0, datagramImmediate},
	{"pieces", 0, datagramPieces},
	{"header-area", 0, datagramHeaderArea},
	{"reply", 0, datagramReply},
	{"no-receive", 0, datagramNoReceive},
	{"receive-too-short", 0, datagramTooShort},
	{"too-long", 0, datagramTooLong},
	{"wrong-qkey", 0, datagramWrongQKey},
	{"own-qkey", 0, datagramOwnQKey},
	{"unknown-qpn", 0, datagramUnknownQPN},
	{"own-device", 0, datagramOwnDevice},
	{"foreign-ah", 0, datagramForeignAH},
	{"no-ah", 0, datagramNoAH},
	{"failed-send-queue", 0, datagramSQE},
	{"inline", 0, datagramInline},
	{"change-qkey", 0, datagramChangeQKey},
	{"to-connected", 0, datagramToConnected},
}

// grhArea is what stands before the data of a datagram.
const grhArea = 40

// datagram is a send to q.
func datagram(id uint64, q *qp, ah verbs.AH, sg ...verbs.SGE) verbs.SendWR {
	w := request(id, verbs.OpSend, sg...)
	w.QPN, w.QKey, w.AH = q.QPN(), q.qkey, ah.ID()
	return w
}

// datagrams are two queue pairs, the first with an address of the second.
func (e *env) datagrams(change func(a, b *setup)) (*duo, verbs.AH) {
	e.Helper()
	d := e.ud(change)
	return d, e.sides[0].ah(e.sides[1])
}

// passes wants w to arrive, and none that was sent before it.
func (d *duo) passes(w verbs.SendWR, room int) verbs.WC {
	d.Helper()
	clear(d.bm.buf[:room])
	d.b.receive(77, d.bm.sge(0, room))
	d.a.send(w)
	d.a.sent(w.ID)
	return d.b.received(77)
}

func datagramFields(e *env) {
	d, ah := e.datagrams(nil)
	for _, n := range []int{0, 1, 3, 4, 8, 64, e.sides[0].port.ActiveMTU.Bytes()} {
		want := d.am.fill(n, byte(n))
		w := d.passes(datagram(1, d.b, ah, d.am.sge(0, n)), n+grhArea)
		require.EqualValues(e, n+grhArea, w.Len)
		require.Equal(e, want, d.bm.buf[grhArea:grhArea+n])
		require.Equal(e, verbs.WCRecv.String(), w.Op.String())
		require.Equal(e, verbs.WCGRH, w.Flags)
		require.Equal(e, [2]verbs.QPN{d.b.QPN(), d.a.QPN()}, [2]verbs.QPN{w.QPN, w.SrcQP})
		require.Zero(e, w.PKeyIndex)
	}
}

func datagramImmediate(e *env) {
	d, ah := e.datagrams(nil)
	r := datagram(1, d.b, ah, d.am.sge(0, 20))
	r.Op, r.Imm = verbs.OpSendImm, 0x01020304
	w := d.passes(r, 100)
	require.Equal(e, verbs.WCGRH|verbs.WCWithImm, w.Flags)
	require.EqualValues(e, 0x01020304, w.Imm)
	require.EqualValues(e, 60, w.Len)
}

// datagramPieces: the area and the data are scattered as one.
func datagramPieces(e *env) {
	d, ah := e.datagrams(nil)
	want := append([]byte{}, d.am.fill(30, 7)...)
	d.b.receive(1, d.bm.sge(0, 50), d.bm.sge(100, 50))
	d.a.send(datagram(2, d.b, ah, d.am.sge(0, 13), d.am.sge(13, 17)))
	d.a.sent(2)
	d.b.received(1)
	require.Equal(e, want, append(append([]byte{}, d.bm.buf[40:50]...), d.bm.buf[100:120]...))
}

// datagramHeaderArea: the first 40 bytes are an IPv6 header, or end with an IPv4
// one whose checksum is right, with the addresses of both ends. A packet to the device
// itself needs no checksum: rxe computes none.
func datagramHeaderArea(e *env) {
	d, ah := e.datagrams(nil)
	w := d.passes(datagram(1, d.b, ah, d.am.sge(0, 20)), 100)
	area := d.bm.buf[:grhArea]
	src, dst := e.sides[0].gid.Addr(), e.sides[1].gid.Addr()
	if src.Is4() {
		ip := area[20:]
		require.EqualValues(e, 0x45, ip[0])
		if src != dst {
			require.EqualValues(e, 0xffff, sum(ip), "checksum")
		}
		require.EqualValues(e, 17, ip[9])
		require.Equal(e, [2]netip.Addr{src, dst}, [2]netip.Addr{netip.AddrFrom4([4]byte(ip[12:])), netip.AddrFrom4([4]byte(ip[16:]))})
	} else {
		require.EqualValues(e, 6, area[0]>>4)
		require.Equal(e, [2]netip.Addr{src, dst}, [2]netip.Addr{netip.AddrFrom16([16]byte(area[8:])), netip.AddrFrom16([16]byte(area[24:]))})
	}
	require.Equal(e, e.sides[0].port.LID, w.SLID)
}

// sum is the ones' complement sum of a header; 0xffff where its checksum is right.
func sum(b []byte) (s uint32) {
	for i := 0; i < len(b); i += 2 {
		s += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	return s&0xffff + s>>16
}

// datagramReply: the sender is addressed from its completion and the header area.
func datagramReply(e *env) {
	d, ah := e.datagrams(nil)
	w := d.passes(datagram(1, d.b, ah, d.am.sge(0, 20)), 100)
	back, err := e.sides[1].pd.CreateAHFromWC(1, &w, d.bm.buf[:grhArea])
	require.NoError(e, err)
	e.closes("ah", back.Close)
	d.a.receive(5, d.am.sge(1000, 100))
	r := datagram(6, d.a, back, d.bm.sge(500, 8))
	r.QPN = w.SrcQP
	d.b.send(r)
	d.b.sent(6)
	require.EqualValues(e, 48, d.a.received(5).Len)
	for _, bad := range [][]byte{nil, make([]byte, 39), make([]byte, 40), pattern(40, 0x55)} {
		_, err := e.sides[1].pd.CreateAHFromWC(1, &w, bad)
		e.refused(err, "%d bytes that are no header", len(bad))
	}
	_, err = e.sides[1].pd.CreateAHFromWC(0, &w, d.bm.buf[:grhArea])
	e.refused(err, "port 0")
}

// datagramNoReceive: without a receive it vanishes, and the next one does not.
func datagramNoReceive(e *env) {
	d, ah := e.datagrams(nil)
	d.am.fill(100, 1)
	for range 3 {
		d.a.send(datagram(1, d.b, ah, d.am.sge(0, 9)))
		d.a.sent(1)
	}
	e.settle()
	require.EqualValues(e, 60, d.passes(datagram(2, d.b, ah, d.am.sge(0, 20)), 100).Len)
	d.b.nothing("without a receive")
}

// datagramTooShort: the receive must hold the area too.
func datagramTooShort(e *env) {
	for _, c := range []struct{ room, n int }{{59, 20}, {40, 1}, {39, 0}, {0, 0}} {
		d, ah := e.datagrams(nil)
		d.b.receive(1, d.bm.sge(0, c.room))
		d.b.receive(2, d.bm.sge(100, 100))
		d.a.send(datagram(3, d.b, ah, d.am.sge(0, c.n)))
		d.a.sent(3)
		want := verbs.WCLocLenErr
		if e.fixture.Traits.ShortReceiveIsOpErr {
			want = verbs.WCLocQPOpErr
		}
		d.b.receivedAs(1, want)
		require.Zero(e, d.bm.buf[c.room], "beyond the receive")
		e.settle()
		if d.b.state() == verbs.StateErr { // a fault of the receive queue may end it
			d.b.receivedAs(2, verbs.WCFlushErr)
			continue
		}
		d.a.send(datagram(4, d.b, ah, d.am.sge(0, 10)))
		d.a.sent(4)
		require.EqualValues(e, 50, d.b.received(2).Len)
	}
}

// datagramTooLong: nothing longer than the MTU is sent.
func datagramTooLong(e *env) {
	d, ah := e.datagrams(nil)
	n := e.sides[0].port.ActiveMTU.Bytes() + 1
	d.b.receive(1, d.bm.sge(0, n+grhArea))
	w := datagram(2, d.b, ah, d.am.sge(0, n))
	if e.fixture.Traits.OversizeDatagramsVanish {
		d.a.send(w)
		d.a.sent(2)
		e.settle()
		d.b.nothing("longer than the MTU")
		return
	}
	taken, st := d.a.PostSend([]verbs.SendWR{w})
	if st == ucs.OK {
		require.Equal(e, 1, taken)
		d.a.sentAs(2, verbs.WCLocLenErr)
	} else {
		require.Equal(e, ucs.InvalidParam, st)
	}
	e.settle()
	d.b.nothing("longer than the MTU")
}

func datagramWrongQKey(e *env) {
	d, ah := e.datagrams(nil)
	d.b.receive(1, d.bm.sge(0, 100))
	for _, k := range []uint32{0, d.b.qkey + 1, d.b.qkey ^ 1<<30} {
		w := datagram(2, d.b, ah, d.am.sge(0, 9))
		w.QKey = k
		d.a.send(w)
		d.a.sent(2)
	}
	e.settle()
	d.a.send(datagram(3, d.b, ah, d.am.sge(0, 20)))
	d.a.sent(3)
	require.EqualValues(e, 60, d.b.received(1).Len, "the one with the right key")
}

// datagramOwnQKey: a key with its highest bit set stands for the sender's own.
func datagramOwnQKey(e *env) {
	d, ah := e.datagrams(func(a, b *setup) { a.qkey, b.qkey = 0x777, 0x777 })
	w := datagram(1, d.b, ah, d.am.sge(0, 9))
	w.QKey = 1<<31 | 5
	require.EqualValues(e, 49, d.passes(w, 100).Len)
	w.QKey = 5
	d.b.receive(2, d.bm.sge(0, 100))
	d.a.send(w)
	d.a.sent(1)
	e.settle()
	d.b.nothing("key 5")
}

func datagramUnknownQPN(e *env) {
	d, ah := e.datagrams(nil)
	for _, n := range []verbs.QPN{0, 1, d.b.QPN() ^ 0x800000, verbs.MulticastQPN - 1} {
		w := datagram(1, d.b, ah, d.am.sge(0, 9))
		w.QPN = n
		d.a.send(w)
		d.a.sent(1)
	}
	require.EqualValues(e, 60, d.passes(datagram(2, d.b, ah, d.am.sge(0, 20)), 100).Len)
}

// datagramOwnDevice: to another queue pair of the device, and to itself.
func datagramOwnDevice(e *env) {
	s := e.sides[0]
	d := &duo{env: e, am: s.mem(4096, everything), bm: s.mem(4096, everything), a: s.qp(defaults(verbs.UD)), b: s.qp(defaults(verbs.UD))}
	d.a.ready(nil)
	d.b.ready(nil)
	ah := s.ah(s)
	require.Equal(e, d.a.QPN(), d.passes(datagram(1, d.b, ah, d.am.sge(0, 20)), 100).SrcQP)
	d.b = d.a
	require.Equal(e, d.a.QPN(), d.passes(datagram(1, d.a, ah, d.am.sge(0, 20)), 100).SrcQP)
}

// datagramForeignAH: address handles are of a domain.
func datagramForeignAH(e *env) {
	d, _ := e.datagrams(nil)
	ah, err := e.sides[0].domain().CreateAH(e.sides[0].address(e.sides[1]))
	require.NoError(e, err)
	e.closes("ah", ah.Close)
	d.leadsNowhere(datagram(2, d.b, ah, d.am.sge(0, 20)))
}

// datagramNoAH: nor is any other number one.
func datagramNoAH(e *env) {
	d, ah := e.datagrams(nil)
	for _, id := range []verbs.AHID{0, ah.ID() ^ 1, ah.ID() ^ 1<<24, 0xfffffff0} {
		d, _ := e.datagrams(nil)
		w := datagram(2, d.b, ah, d.am.sge(0, 20))
		w.AH = id
		d.leadsNowhere(w)
	}
	require.NoError(e, ah.Close())
	d.leadsNowhere(datagram(2, d.b, ah, d.am.sge(0, 20)))
}

// leadsNowhere wants w to be refused or to fail.
func (d *duo) leadsNowhere(w verbs.SendWR) {
	d.Helper()
	d.b.receive(1, d.bm.sge(0, 100))
	n, st := d.a.PostSend([]verbs.SendWR{w})
	if st == ucs.OK {
		require.Equal(d, 1, n)
		require.NotEqual(d, verbs.WCSuccess.String(), d.a.next(d.a.sendCQ).Status.String())
	} else {
		require.Equal(d, ucs.InvalidParam, st)
	}
	d.settle()
	d.b.nothing("an address that is none of the domain's")
}

// datagramSQE: a local fault stops the send queue alone, which Modify wakes again.
func datagramSQE(e *env) {
	d, ah := e.datagrams(nil)
	bad := datagram(1, d.b, ah, d.am.sge(0, 20))
	bad.SG[0].LKey ^= 1
	d.a.send(bad, datagram(2, d.b, ah, d.am.sge(0, 20)))
	d.a.sentAs(1, verbs.WCLocProtErr)
	d.a.sentAs(2, verbs.WCFlushErr)
	require.Equal(e, verbs.StateSQE.String(), d.a.state().String())
	d.a.send(datagram(3, d.b, ah, d.am.sge(0, 20)))
	d.a.sentAs(3, verbs.WCFlushErr)

	d.a.receive(4, d.am.sge(1000, 100)) // receiving goes on
	d.b.send(datagram(5, d.a, e.sides[1].ah(e.sides[0]), d.bm.sge(0, 7)))
	d.b.sent(5)
	require.EqualValues(e, 47, d.a.received(4).Len)

	require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	require.EqualValues(e, 60, d.passes(datagram(6, d.b, ah, d.am.sge(0, 20)), 100).Len)
}

func datagramInline(e *env) {
	most := min(e.sides[0].Attr().MaxInline, 60)
	if most == 0 {
		e.notApplicable("no inline data")
	}
	d, ah := e.datagrams(func(a, _ *setup) { a.caps.MaxInline = most })
	w := flagged(datagram(1, d.b, ah), verbs.SendInline|verbs.SendSignaled)
	copy(w.Inline[:], pattern(most, 3))
	w.InlineLen = uint8(most)
	d.passes(w, 200)
	require.Equal(e, pattern(most, 3), d.bm.buf[grhArea:grhArea+most])
}

// datagramChangeQKey: the key may change while the queue pair works.
func datagramChangeQKey(e *env) {
	d, ah := e.datagrams(nil)
	d.passes(datagram(1, d.b, ah, d.am.sge(0, 9)), 100)
	require.NoError(e, d.b.Modify(&verbs.QPAttr{QKey: 0x4321}, verbs.AttrQKey))
	d.b.receive(2, d.bm.sge(0, 100))
	d.a.send(datagram(3, d.b, ah, d.am.sge(0, 9))) // with the old key
	d.a.sent(3)
	e.settle()
	d.b.qkey = 0x4321
	d.a.send(datagram(4, d.b, ah, d.am.sge(0, 20)))
	d.a.sent(4)
	require.EqualValues(e, 60, d.b.received(2).Len)
}

// datagramToConnected: a datagram does not reach a connected queue pair.
func datagramToConnected(e *env) {
	u, ah := e.datagrams(nil)
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(0, 100))
	u.a.send(datagram(2, d.b, ah, u.am.sge(0, 9)))
	u.a.sent(2)
	e.settle()
	d.b.nothing("a datagram")
	d.a.send(request(3, verbs.OpSend, d.am.sge(0, 20)))
	d.a.sent(3)
	require.EqualValues(e, 20, d.b.received(1).Len)
}
