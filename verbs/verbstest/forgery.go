package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var forgeryCases = []testCase{
	{"taken", Forgery, forgeryTaken},
	{"source", Forgery, func(e *env) { forgeryDropped(e, Spoofed, func(*forged) {}) }},
	{"icrc", Forgery, func(e *env) { forgeryDropped(e, Damaged, func(*forged) {}) }},
	{"partition-key", Forgery, func(e *env) { forgeryDropped(e, Genuine, func(f *forged) { f.PKey = 0x7abc }) }},
	{"qpn", Forgery, func(e *env) { forgeryDropped(e, Genuine, func(f *forged) { f.DestQP ^= 0x5a5a5a }) }},
	{"psn-ahead", Forgery, func(e *env) { forgeryDropped(e, Genuine, func(f *forged) { f.PSN = f.PSN.Add(1000) }) }},
	{"psn-behind", Forgery, func(e *env) { forgeryDropped(e, Genuine, func(f *forged) { f.PSN = f.PSN.Add(-5) }) }},
	{"other-service", Forgery, func(e *env) { forgeryDropped(e, Genuine, func(f *forged) { f.Opcode = wire.UDSendOnly }) }},
	{"late-packet", Forgery, forgeryLate},
	{"garbage", Forgery, forgeryGarbage},
	{"acks", Forgery, forgeryAcks},
	{"datagram-qkey", Forgery, forgeryQKey},
	{"before-rtr", Forgery, forgeryBeforeRTR},
}

// forged is a packet in the making.
type forged struct {
	wire.Header
	payload []byte
}

func (f *forged) bytes() []byte {
	f.PadCnt = uint8(wire.Pad(len(f.payload)))
	b := append(f.Append(nil), f.payload...)
	return append(b, make([]byte, f.PadCnt)...)
}

// next is the message that the second end expects, with a text in it.
func (d *duo) forge() *forged {
	key, err := d.sides[1].PKey(1, 0)
	require.NoError(d, err)
	return &forged{
		Header:  wire.Header{Opcode: wire.SendOnly, AckReq: true, PKey: key, DestQP: d.b.QPN(), PSN: d.a.psn},
		payload: []byte("forged!"),
	}
}

// forgeryTaken: a packet that is right in all is taken; so the others of this
// theme are dropped for their fault.
func forgeryTaken(e *env) {
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(0, 64))
	e.fabric.Inject(1, d.forge().bytes(), Genuine)
	require.EqualValues(e, 7, d.b.received(1).Len)
	require.Equal(e, "forged!", string(d.bm.buf[:7]))
}

// forgeryDropped: a packet with a fault takes no receive and disturbs nothing.
func forgeryDropped(e *env, m Manner, change func(*forged)) {
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(0, 64))
	f := d.forge()
	change(f)
	if f.Opcode == wire.UDSendOnly {
		f.QKey, f.SrcQP = d.b.qkey, d.a.QPN()
	}
	for range 3 {
		e.fabric.Inject(1, f.bytes(), m)
		e.settle()
	}
	d.b.nothing("a forged packet")
	d.a.nothing("a forged packet")
	d.am.fill(8, 1)
	d.a.send(request(2, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(2)
	require.EqualValues(e, 8, d.b.received(1).Len)
	require.Equal(e, pattern(8, 1), d.bm.buf[:8])
	d.stream(5, 100)
}

// forgeryLate: a packet for a queue pair that is closed, or was reset, has no effect, also where its
// number is in use again.
func forgeryLate(e *env) {
	d := e.rc(nil)
	f := d.forge()
	d.b.to(verbs.StateReset, nil)
	e.fabric.Inject(1, f.bytes(), Genuine)
	e.settle()
	require.Equal(e, verbs.StateReset.String(), d.b.state().String())
	require.NoError(e, d.b.Close())
	for range 20 {
		q := e.sides[1].qp(defaults(verbs.RC))
		require.NotEqual(e, f.DestQP, q.QPN(), "the number is used again at once")
	}
	e.fabric.Inject(1, f.bytes(), Genuine)
	e.settle()
	e.rc(nil).stream(5, 100)
}

// forgeryGarbage: bytes that are no packet, and packets that make no sense here.
func forgeryGarbage(e *env) {
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(0, 64))
	for n := range 40 {
		e.fabric.Inject(1, pattern(n, 0xff), Genuine)
		e.fabric.Inject(1, make([]byte, n), Genuine)
	}
	for op := range 256 {
		if k := wire.Opcode(op).Info().Kind; k != wire.KindNone {
			continue
		}
		f := d.forge()
		f.Opcode = wire.Opcode(op)
		e.fabric.Inject(1, f.bytes(), Genuine)
	}
	b := d.forge().bytes()
	for n := range len(b) - 8 { // cut short
		if n%4 != 0 || n < wire.BTHLen {
			e.fabric.Inject(1, b[:n], Genuine)
		}
	}
	e.settle()
	d.b.nothing("garbage")
	d.a.send(request(2, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(2)
	d.b.received(1)
	d.stream(5, 100)
}

// forgeryAcks: acknowledgements of what was never sent end nothing.
func forgeryAcks(e *env) {
	d := e.rc(nil)
	ack := func(psn verbs.PSN, s wire.Syndrome) {
		f := d.forge()
		f.Opcode, f.AckReq, f.DestQP, f.PSN, f.payload = wire.Acknowledge, false, d.a.QPN(), psn, nil
		f.Syndrome, f.MSN = s, 7
		e.fabric.Inject(0, f.bytes(), Genuine)
	}
	for _, s := range []wire.Syndrome{wire.AckNoCredits, wire.NakSequence, wire.NakRemoteAccess, wire.RNR(1), 0x40, 0x7f, 0x80} {
		for _, off := range []int{0, 1, 100, -1, -100, 1 << 22} {
			ack(d.a.psn.Add(off), s)
		}
	}
	e.settle()
	d.a.nothing("forged acknowledgements")
	// One that comes after the first post is no forgery any more. A message behind them shows that all have come.
	d.a.receive(1, d.am.sge(0, 64))
	d.b.send(request(2, verbs.OpSend, d.bm.sge(0, 8)))
	d.b.sent(2)
	d.a.received(1)
	require.Equal(e, verbs.StateRTS.String(), d.a.state().String())
	d.stream(20, 100)
}

// forgeryQKey: a datagram needs the queue pair's key.
func forgeryQKey(e *env) {
	d := e.ud(nil)
	f := d.forge()
	f.Opcode, f.AckReq = wire.UDSendOnly, false
	d.b.receive(1, d.bm.sge(0, 200))
	for _, k := range []uint32{0, d.b.qkey + 1, d.b.qkey | 1<<31} {
		f.QKey, f.SrcQP = k, d.a.QPN()
		e.fabric.Inject(1, f.bytes(), Genuine)
	}
	e.settle()
	d.b.nothing("a wrong key")
	f.QKey = d.b.qkey
	e.fabric.Inject(1, f.bytes(), Genuine)
	w := d.b.received(1)
	require.EqualValues(e, grhArea+7, w.Len)
	require.Equal(e, d.a.QPN(), w.SrcQP)
}

// forgeryBeforeRTR: a queue pair in Init receives no packet.
func forgeryBeforeRTR(e *env) {
	d := e.unconnected(verbs.RC, nil)
	d.b.to(verbs.StateInit, nil)
	d.b.receive(1, d.bm.sge(0, 64))
	e.fabric.Inject(1, d.forge().bytes(), Genuine)
	e.settle()
	d.b.nothing("in Init")
	d.a.ready(d.b)
	d.b.to(verbs.StateRTR, d.a)
	d.a.send(request(2, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(2)
	require.EqualValues(e, 8, d.b.received(1).Len)
}
