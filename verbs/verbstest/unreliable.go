package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

// The unreliable connection: messages of any length without acknowledgements. What does not
// arrive whole is lost without a trace at the sender; what follows it is served.
var unreliableCases = []testCase{
	{"states", 0, unreliableStates},
	{"attributes", 0, unreliableAttributes},
	{"send", 0, func(e *env) { unreliableSizes(e, verbs.OpSend) }},
	{"write", 0, func(e *env) { unreliableSizes(e, verbs.OpWriteImm) }},
	{"immediate", 0, unreliableImmediate},
	{"own-device", 0, unreliableOwnDevice},
	{"opcodes", 0, unreliableOpcodes},
	{"no-acks", Packets, unreliableNoAcks},
	{"no-receive", 0, unreliableNoReceive},
	{"lost-packet", Packets, unreliableLostPacket},
	{"lost-write", Packets, unreliableLostWrite},
	{"drained", 0, unreliableDrained},
	{"bad-key", 0, unreliableBadKey},
	{"missing-right", 0, unreliableMissingRight},
	{"receive-too-short", 0, unreliableTooShort},
	{"bad-receive", 0, unreliableBadReceive},
	{"failed-send-queue", 0, unreliableSQE},
	{"shared-receives", 0, unreliableSRQ},
	{"foreign-opcode", Forgery, unreliableForeignOpcode},
}

func unreliableStates(e *env) {
	e.uc(nil)
	stateCellsOf(e, verbs.UC)
}

func unreliableAttributes(e *env) {
	e.uc(nil)
	stateAttributesOf(e, verbs.UC)
}

// delivers sends w, which takes a receive of b, and wants n bytes of it to arrive there.
func (d *duo) delivers(w verbs.SendWR, n int) verbs.WC {
	d.Helper()
	d.b.receive(77, d.bm.sge(0, n))
	d.a.send(w)
	d.a.sent(w.ID)
	c := d.b.received(77)
	require.EqualValues(d, n, c.Len)
	return c
}

// unreliableSizes are lengths around the packet's.
func unreliableSizes(e *env, op verbs.Opcode) {
	d := e.uc(func(a, _ *setup) { a.psn = 0xfffff0 })
	m := d.a.mtu.Bytes()
	for _, n := range []int{0, 1, 3, 4, 64, m - 1, m, m + 1, 2*m - 1, 2 * m, 2*m + 1, 5*m + 3, 21 * m} {
		want := append([]byte{}, d.am.fill(n, byte(n))...)
		clear(d.bm.buf[:n])
		w := at(request(1, op, d.am.sge(0, n)), d.bm, 0)
		c := d.delivers(w, n)
		require.Equal(e, want, d.bm.buf[:n], "%v of %d bytes", op, n)
		require.Equal(e, d.b.QPN(), c.QPN)
	}
}

func unreliableImmediate(e *env) {
	d := e.uc(nil)
	for op, want := range map[verbs.Opcode]verbs.WCOpcode{verbs.OpSendImm: verbs.WCRecv, verbs.OpWriteImm: verbs.WCRecvImm} {
		for _, n := range []int{0, 20, 3000} {
			w := at(request(1, op, d.am.sge(0, n)), d.bm, 0)
			w.Imm = 0x01020304
			c := d.delivers(w, n)
			require.Equal(e, want.String(), c.Op.String())
			require.Equal(e, verbs.WCWithImm, c.Flags&^verbs.WCGRH)
			require.EqualValues(e, 0x01020304, c.Imm)
		}
	}
}

// unreliableOwnDevice: both ends on one device.
func unreliableOwnDevice(e *env) {
	e.uc(nil)
	s := e.sides[0]
	a, b := s.qp(defaults(verbs.UC)), s.qp(defaults(verbs.UC))
	a.ready(b)
	b.ready(a)
	m := s.mem(8192, everything)
	want := append([]byte{}, m.fill(3000, 3)...)
	b.receive(1, m.sge(4096, 4096))
	a.send(request(2, verbs.OpSend, m.sge(0, 3000)))
	a.sent(2)
	b.received(1)
	require.Equal(e, want, m.buf[4096:7096])
}

// unreliableOpcodes: what needs a response cannot be posted.
func unreliableOpcodes(e *env) {
	d := e.uc(nil)
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpCompareSwap, verbs.OpFetchAdd} {
		d.a.refuses(at(request(1, op, d.am.sge(0, 8)), d.bm, 0), "%v", op)
	}
	d.delivers(request(2, verbs.OpSend, d.am.sge(0, 8)), 8)
}

// unreliableNoAcks: nothing returns, nothing asks for it, and each packet has a number.
func unreliableNoAcks(e *env) {
	d := e.uc(nil)
	t := e.watch(nil)
	d.delivers(request(1, verbs.OpSend, d.am.sge(0, 3000)), 3000)
	d.delivers(at(request(2, verbs.OpWriteImm, d.am.sge(0, 3000)), d.bm, 0), 3000)
	e.settle()
	e.fabric.Filter(nil)
	all := t.find(func(*seen) bool { return true })
	var ops []wire.Opcode
	for i, s := range all {
		ops = append(ops, s.op)
		require.Zero(e, s.from)
		require.Equal(e, d.a.psn+verbs.PSN(i), s.psn)
		require.False(e, s.ackReq)
	}
	require.Equal(e, []wire.Opcode{
		wire.UC + wire.SendFirst, wire.UC + wire.SendMiddle, wire.UC + wire.SendLast,
		wire.UC + wire.WriteFirst, wire.UC + wire.WriteMiddle, wire.UC + wire.WriteLastImm,
	}, ops)
}

// unreliableNoReceive: a message without a receive is lost, also one of many packets, and the
// next one is not.
func unreliableNoReceive(e *env) {
	d := e.uc(nil)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWriteImm} {
		for _, n := range []int{8, 3000} {
			d.a.send(at(request(1, op, d.am.sge(0, n)), d.bm, 0))
			d.a.sent(1)
			e.settle()
			want := append([]byte{}, d.am.fill(100, byte(n))...)
			d.delivers(request(2, verbs.OpSend, d.am.sge(0, 100)), 100)
			require.Equal(e, want, d.bm.buf[:100])
		}
	}
	require.Equal(e, verbs.StateRTS.String(), d.b.state().String())
}

// unreliableLostPacket: whichever packet of a message is lost, the message is, and its receive
// takes the next one.
func unreliableLostPacket(e *env) {
	d := e.uc(nil)
	const n = 4000
	for lost := range 4 {
		d.b.receive(7, d.bm.sge(0, n))
		count := 0
		e.watch(func(*seen) Verdict {
			count++
			return Verdict{Drop: count-1 == lost}
		})
		d.a.send(request(1, verbs.OpSend, d.am.sge(0, n)))
		d.a.sent(1)
		e.settle()
		require.Equal(e, 4, count)
		e.fabric.Filter(nil)
		d.b.nothing("a message without a packet")
		want := append([]byte{}, d.am.fill(n, byte(lost))...)
		d.a.send(request(2, verbs.OpSend, d.am.sge(0, n)))
		d.a.sent(2)
		require.EqualValues(e, n, d.b.received(7).Len)
		require.Equal(e, want, d.bm.buf[:n])
	}
	e.settle()
	d.b.nothing("each message once")
}

// unreliableLostWrite: a WRITE whose packet is lost completes no receive.
func unreliableLostWrite(e *env) {
	d := e.uc(nil)
	const n = 4000
	d.b.receive(7)
	for lost := range 4 {
		count := 0
		e.watch(func(*seen) Verdict {
			count++
			return Verdict{Drop: count-1 == lost}
		})
		d.a.send(at(request(1, verbs.OpWriteImm, d.am.sge(0, n)), d.bm, 0))
		d.a.sent(1)
		e.settle()
		e.fabric.Filter(nil)
		d.b.nothing("a write without a packet")
	}
	want := append([]byte{}, d.am.fill(n, 3)...)
	d.a.send(at(request(2, verbs.OpWriteImm, d.am.sge(0, n)), d.bm, 0))
	d.a.sent(2)
	require.EqualValues(e, n, d.b.received(7).Len)
	require.Equal(e, want, d.bm.buf[:n])
}

// unreliableDrained: requests that are posted while the send queue drains wait.
func unreliableDrained(e *env) {
	d := e.uc(nil)
	d.b.receive(7, d.bm.sge(0, 64))
	d.a.to(verbs.StateSQD, nil)
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 64)))
	e.settle()
	d.a.nothing("drained")
	d.b.nothing("drained")
	require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	d.a.sent(1)
	d.b.received(7)
}

// unreliableBadKey: a WRITE to memory that is not there is lost, and changes nothing.
func unreliableBadKey(e *env) {
	d := e.uc(nil)
	for _, n := range []int{8, 3000} {
		clear(d.bm.buf)
		d.am.fill(n, 9)
		w := at(request(1, verbs.OpWrite, d.am.sge(0, n)), d.bm, 0)
		for _, change := range []func(w *verbs.SendWR){
			func(w *verbs.SendWR) { w.RKey ^= 1 },
			func(w *verbs.SendWR) { w.Remote += duoMem - 4 },
		} {
			bad := w
			change(&bad)
			d.a.send(bad)
			d.a.sent(1)
			e.settle()
		}
		require.Equal(e, make([]byte, duoMem), d.bm.buf)
		d.delivers(request(2, verbs.OpSend, d.am.sge(0, 8)), 8)
	}
	require.Equal(e, verbs.StateRTS.String(), d.b.state().String())
}

// unreliableMissingRight: the queue pair's own rights hold too.
func unreliableMissingRight(e *env) {
	d := e.uc(func(_, b *setup) { b.access = 0 })
	d.am.fill(8, 9)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 8)), d.bm, 0))
	d.a.sent(1)
	e.settle()
	require.Equal(e, make([]byte, 8), d.bm.buf[:8])
	d.delivers(request(2, verbs.OpSend, d.am.sge(0, 8)), 8)
}

// unreliableTooShort: a message that is longer than its receive fails the receiver, and the
// sender does not learn of it.
func unreliableTooShort(e *env) {
	for _, n := range []int{65, 3000} {
		d := e.uc(nil)
		d.b.receive(7, d.bm.sge(0, 64))
		d.b.receive(8, d.bm.sge(0, 64))
		d.a.send(request(1, verbs.OpSend, d.am.sge(0, n)))
		d.a.sent(1)
		want := verbs.WCLocLenErr
		if e.fixture.Traits.ShortReceiveIsOpErr {
			want = verbs.WCLocQPOpErr
		}
		d.b.receivedAs(7, want)
		d.b.receivedAs(8, verbs.WCFlushErr)
		d.b.fails()
		require.Equal(e, verbs.StateRTS.String(), d.a.state().String())
	}
}

// unreliableBadReceive: a receive into memory that is not there fails the receiver.
func unreliableBadReceive(e *env) {
	d := e.uc(nil)
	bad := d.bm.sge(0, 64)
	bad.LKey ^= 1
	d.b.receive(7, bad)
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 32)))
	d.a.sent(1)
	d.b.receivedAs(7, verbs.WCLocProtErr, verbs.WCLocQPOpErr)
	d.b.fails()
}

// unreliableSQE: a request that cannot be sent fails, and those behind it are flushed. Where the
// state is SQE then, receives go on and the queue pair can send again.
func unreliableSQE(e *env) {
	d := e.uc(nil)
	bad := d.am.sge(0, 8)
	bad.LKey ^= 1
	d.b.receive(7, d.bm.sge(0, 64))
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)), request(2, verbs.OpSend, bad), request(3, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(1)
	d.a.sentAs(2, verbs.WCLocProtErr)
	d.a.sentAs(3, verbs.WCFlushErr)
	d.b.received(7)
	if d.a.state() == verbs.StateErr {
		return
	}
	require.Equal(e, verbs.StateSQE.String(), d.a.state().String())
	d.a.receive(8, d.am.sge(0, 64))
	d.b.send(request(4, verbs.OpSend, d.bm.sge(0, 64)))
	d.b.sent(4)
	d.a.received(8)
	require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	d.delivers(request(5, verbs.OpSend, d.am.sge(0, 8)), 8)
}

// unreliableSRQ: receives of a shared queue serve it too.
func unreliableSRQ(e *env) {
	q := e.srq(verbs.SRQAttr{MaxWR: 16, MaxSGE: 1})
	d := e.uc(func(_, b *setup) { b.srq = q })
	want := append([]byte{}, d.am.fill(3000, 4)...)
	n, st := q.PostRecv([]verbs.RecvWR{recvWR(7, d.bm.sge(0, 3000))})
	require.Equal(e, ucs.OK, st)
	require.Equal(e, 1, n)
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 3000)))
	d.a.sent(1)
	d.b.received(7)
	require.Equal(e, want, d.bm.buf[:3000])
}

// unreliableForeignOpcode: packets of another service are dropped.
func unreliableForeignOpcode(e *env) {
	u, r := e.uc(nil), e.rc(nil)
	u.b.receive(7, u.bm.sge(0, 64))
	r.b.receive(8, r.bm.sge(0, 64))
	for d, op := range map[*duo]wire.Opcode{u: wire.SendOnly, r: wire.UC + wire.SendOnly} {
		f := d.forge()
		f.Opcode = op
		e.fabric.Inject(1, f.bytes(), Genuine)
	}
	e.settle()
	u.b.nothing("a packet of a reliable connection")
	r.b.nothing("a packet of an unreliable connection")
	u.a.send(request(1, verbs.OpSend, u.am.sge(0, 8)))
	u.a.sent(1)
	u.b.received(7)
	r.a.send(request(2, verbs.OpSend, r.am.sge(0, 8)))
	r.a.sent(2)
	r.b.received(8)
}
