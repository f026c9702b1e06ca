package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var dataCases = []testCase{
	{"send", 0, func(e *env) { dataSizes(e, verbs.OpSend) }},
	{"write", 0, func(e *env) { dataSizes(e, verbs.OpWrite) }},
	{"read", 0, func(e *env) { dataSizes(e, verbs.OpRead) }},
	{"mtus", 0, dataMTUs},
	{"pieces", 0, dataPieces},
	{"large", 0, dataLarge},
	{"zero-length", 0, dataZero},
	{"empty-pieces", 0, dataEmptyPieces},
	{"own-device", 0, dataOwnDevice},
	{"both-ways", 0, dataBothWays},
	{"stream", 0, dataStream},
	{"read-after-write", 0, dataReadAfterWrite},
	{"fence", 0, dataFence},
	{"reads-in-flight", Packets, dataReadsInFlight},
	{"psn-wrap", 0, dataPSNWrap},
	{"psn-count", Packets, dataPSNCount},
	{"send-invalidate", 0, dataSendInvalidate},
	{"invalidate-unknown", 0, dataInvalidateUnknown},
	{"target-idle", Background, dataTargetIdle},
}

// move carries n bytes by op, from a to b; a read from b to a. It checks every
// byte and that nothing beyond changed.
func (d *duo) move(op verbs.Opcode, n int) {
	d.Helper()
	from, to := d.am, d.bm
	if op == verbs.OpRead {
		from, to = d.bm, d.am
	}
	want := append(append([]byte{}, from.fill(n, byte(n)+byte(op))...), 0xee)
	clear(to.buf[:n])
	to.buf[n] = 0xee
	switch op {
	case verbs.OpSend, verbs.OpSendImm:
		d.b.receive(1, to.sge(0, n+1))
		d.a.send(request(2, op, from.sge(0, n)))
		require.EqualValues(d, n, d.b.received(1).Len)
	case verbs.OpRead:
		d.a.send(at(request(2, op, to.sge(0, n)), from, 0))
	default:
		d.a.send(at(request(2, op, from.sge(0, n)), to, 0))
	}
	d.a.sent(2)
	require.Equal(d, want, to.buf[:n+1], "%v of %d bytes", op, n)
}

// dataSizes are lengths around the packet's.
func dataSizes(e *env, op verbs.Opcode) {
	d := e.rc(nil)
	m := d.a.mtu.Bytes()
	for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 63, 64, 65, m - 1, m, m + 1, 2*m - 1, 2 * m, 2*m + 1, 5*m + 3, 33 * m} {
		d.move(op, n)
	}
}

func dataMTUs(e *env) {
	for m := verbs.MTU256; m <= min(e.sides[0].port.PathMTU(), e.sides[1].port.PathMTU()); m++ {
		d := e.rc(func(a, b *setup) { a.mtu, b.mtu = m, m })
		for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
			for _, n := range []int{m.Bytes() - 1, m.Bytes(), m.Bytes() + 1, 10*m.Bytes() + 1} {
				d.move(op, n)
			}
		}
	}
}

func dataLarge(e *env) {
	d := e.rc(nil)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
		d.move(op, duoMem-1)
	}
}

// dataZero: messages without data; those to remote memory need no key.
func dataZero(e *env) {
	d := e.rc(nil)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead} {
		takes := op != verbs.OpWrite && op != verbs.OpRead
		if takes {
			d.b.receive(1)
		}
		w := request(2, op)
		w.RKey, w.Remote = 0xbad0bad0, 12345
		d.a.send(w)
		d.a.sent(2)
		if takes {
			require.Zero(e, d.b.received(1).Len)
		}
	}
}

// dataEmptyPieces: a piece without length names no memory.
func dataEmptyPieces(e *env) {
	d := e.rc(nil)
	want := d.am.fill(8, 4)
	d.a.send(at(request(1, verbs.OpWrite, verbs.SGE{Addr: d.am.Addr(), LKey: d.am.LKey()}, d.am.sge(0, 8)), d.bm, 0))
	d.a.sent(1)
	require.Equal(e, want, d.bm.buf[:8])
}

// dataOwnDevice: two queue pairs of one device, and one with itself.
func dataOwnDevice(e *env) {
	s := e.sides[0]
	d := &duo{env: e, am: s.mem(duoMem, everything), bm: s.mem(duoMem, everything), a: s.qp(defaults(verbs.RC)), b: s.qp(defaults(verbs.RC))}
	d.a.ready(d.b)
	d.b.ready(d.a)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
		d.move(op, 5000)
	}
	alone := s.qp(defaults(verbs.RC))
	alone.ready(alone)
	d.a, d.b = alone, alone
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead} {
		d.move(op, 5000)
	}
}

// dataBothWays: both ends send and read at once.
func dataBothWays(e *env) {
	d := e.rc(nil)
	d.am.fill(4000, 1)
	d.bm.fill(4000, 2)
	for range 20 {
		for _, x := range []struct {
			q            *qp
			mine, theirs *mem
		}{{d.a, d.am, d.bm}, {d.b, d.bm, d.am}} {
			x.q.receive(1, x.mine.sge(10000, 4000))
			x.q.send(
				request(2, verbs.OpSend, x.mine.sge(0, 4000)),
				at(request(3, verbs.OpWrite, x.mine.sge(0, 4000)), x.theirs, 20000),
				at(request(4, verbs.OpRead, x.mine.sge(30000, 4000)), x.theirs, 0),
			)
		}
		for i, q := range []*qp{d.a, d.b} {
			other := pattern(4000, byte(2-i))
			mine := []*mem{d.am, d.bm}[i]
			q.received(1)
			q.sent(2)
			q.sent(3)
			q.sent(4)
			require.Equal(e, other, mine.buf[10000:14000], "sent")
			require.Equal(e, other, mine.buf[30000:34000], "read")
		}
		require.Equal(e, pattern(4000, 1), d.bm.buf[20000:24000], "written")
		clear(d.am.buf[10000:])
		clear(d.bm.buf[10000:])
	}
}

// dataStream: many messages, as many as fit at a time, arrive in order and whole.
func dataStream(e *env) {
	d := e.rc(nil)
	d.stream(500, 700)
}

// stream sends count messages of n bytes and checks each.
func (d *duo) stream(count, n int) {
	d.Helper()
	const window = 16
	posted, sent := 0, 0
	for i := range window {
		d.b.receive(uint64(i), d.bm.sge(i*4096, n))
	}
	for got := range count {
		for posted < count && posted < sent+window && posted < got+window {
			slot := posted % window
			copy(d.am.buf[slot*4096:], pattern(n, byte(posted)))
			d.a.send(request(uint64(posted), verbs.OpSend, d.am.sge(slot*4096, n)))
			posted++
		}
		slot := got % window
		require.EqualValues(d, n, d.b.received(uint64(got)).Len)
		require.Equal(d, pattern(n, byte(got)), d.bm.buf[slot*4096:][:n], "message %d", got)
		d.b.receive(uint64(got+window), d.bm.sge(slot*4096, n))
		d.a.sent(uint64(sent))
		sent++
	}
}

// dataReadAfterWrite: a read sees what was written before it on the queue pair.
func dataReadAfterWrite(e *env) {
	d := e.rc(nil)
	for i := range 50 {
		want := append([]byte{}, d.am.fill(3000, byte(i))...)
		d.a.send(
			flagged(at(request(1, verbs.OpWrite, d.am.sge(0, 3000)), d.bm, 0), 0),
			at(request(2, verbs.OpRead, d.am.sge(10000, 3000)), d.bm, 0),
		)
		d.a.sent(2)
		require.Equal(e, want, d.am.buf[10000:13000])
	}
}

// dataFence: a fenced request sends what the read before it fetched.
func dataFence(e *env) {
	d := e.rc(nil)
	for i := range 50 {
		want := append([]byte{}, d.bm.fill(5000, byte(i))...)
		d.a.send(
			flagged(at(request(1, verbs.OpRead, d.am.sge(0, 5000)), d.bm, 0), 0),
			flagged(at(request(2, verbs.OpWrite, d.am.sge(0, 5000)), d.bm, 10000), verbs.SendFence|verbs.SendSignaled),
		)
		d.a.sent(2)
		require.Equal(e, want, d.bm.buf[10000:15000])
	}
}

// dataReadsInFlight: no more reads and atomics are outstanding than were agreed.
func dataReadsInFlight(e *env) {
	for _, limit := range []uint8{1, 3} {
		d := e.rc(func(a, b *setup) { a.reads, b.serves = limit, limit })
		open, most := 0, 0
		e.watch(func(s *seen) Verdict {
			switch {
			case s.from == 0 && s.request():
				open++
				most = max(most, open)
			case s.from == 1 && s.Headers != 0 && s.Place.Ends():
				open--
			}
			return Verdict{}
		})
		for i := range 12 {
			op := []verbs.Opcode{verbs.OpRead, verbs.OpFetchAdd}[i%2]
			d.a.send(at(request(uint64(i), op, d.am.sge(i*8, 8)), d.bm, 0))
		}
		for i := range 12 {
			d.a.sent(uint64(i))
		}
		e.fabric.Filter(nil)
		require.LessOrEqual(e, most, int(limit))
	}
}

// dataPSNWrap: sequence numbers go over their end in the middle of all kinds of
// messages.
func dataPSNWrap(e *env) {
	for _, start := range []verbs.PSN{0xfffff0, 0xfffffe, 0xffffff} {
		d := e.rc(func(a, b *setup) { a.psn, b.psn = start, start })
		for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpSend, verbs.OpWrite} {
			d.move(op, 7*1024+1)
		}
		d.stream(40, 100)
		d.move(verbs.OpRead, 30*1024)
	}
}

// dataPSNCount: each packet takes one number, a read as many as its answer has
// packets.
func dataPSNCount(e *env) {
	d := e.rc(func(a, _ *setup) { a.psn = 0xfffffd })
	t := e.watch(nil)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 2500)), d.bm, 0))
	d.a.sent(1)
	d.a.send(at(request(2, verbs.OpRead, d.am.sge(0, 2500)), d.bm, 0))
	d.a.sent(2)
	d.a.send(at(request(3, verbs.OpWrite), d.bm, 0))
	d.a.sent(3)
	d.a.send(at(request(4, verbs.OpRead), d.bm, 0), at(request(5, verbs.OpFetchAdd, d.am.sge(0, 8)), d.bm, 0))
	d.a.sent(4)
	d.a.sent(5)
	var got []verbs.PSN
	for _, s := range t.requests(0) {
		got = append(got, s.psn)
	}
	require.Equal(e, []verbs.PSN{0xfffffd, 0xfffffe, 0xffffff, 0, 3, 4, 5}, got)
	answers := t.find(func(s *seen) bool { return s.from == 1 && s.op != wire.Acknowledge })
	got = nil
	for _, s := range answers {
		got = append(got, s.psn)
	}
	require.Equal(e, []verbs.PSN{0, 1, 2, 4, 5}, got, "answers")
}

// dataSendInvalidate: the receiver's key is invalid when the message is there, of
// one packet or of several.
func dataSendInvalidate(e *env) {
	for _, n := range []int{8, 3000} {
		d := e.rc(nil)
		m := e.sides[1].revocable(64)
		d.b.receive(1, d.bm.sge(0, n))
		w := request(2, verbs.OpSendInv, d.am.sge(0, n))
		w.Imm = m.RKey()
		d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 8)), m, 0))
		d.a.sent(1)
		if k, st := d.a.PostSend([]verbs.SendWR{w}); k == 0 {
			e.notApplicable("no remote invalidation: " + st.String())
		}
		d.a.sent(2)
		c := d.b.received(1)
		require.Equal(e, verbs.WCWithInv, c.Flags&(verbs.WCWithInv|verbs.WCWithImm))
		require.Equal(e, m.RKey(), c.Imm)
		d.a.send(at(request(3, verbs.OpWrite, d.am.sge(0, 8)), m, 0))
		d.a.sentAs(3, verbs.WCRemAccessErr)
	}
}

// dataInvalidateUnknown: a key that is none cannot be invalidated.
func dataInvalidateUnknown(e *env) {
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(0, 64))
	w := request(2, verbs.OpSendInv, d.am.sge(0, 8))
	w.Imm = d.bm.RKey() ^ 1<<9
	if n, st := d.a.PostSend([]verbs.SendWR{w}); n == 0 {
		e.notApplicable("no remote invalidation: " + st.String())
	}
	d.a.sentAs(2, verbs.WCRemAccessErr, verbs.WCRemInvReqErr, verbs.WCRemOpErr)
	d.b.fails()
}

// dataTargetIdle: one-sided operations end though the target's owner does nothing.
func dataTargetIdle(e *env) {
	d := e.rc(nil)
	for _, c := range e.cqs {
		c.paused = true
	}
	d.a.sendCQ.paused = false
	for i := range 20 {
		want := append([]byte{}, d.am.fill(3000, byte(i))...)
		d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 3000)), d.bm, 0))
		d.a.sent(1)
		d.a.send(at(request(2, verbs.OpRead, d.am.sge(10000, 3000)), d.bm, 0))
		d.a.sent(2)
		require.Equal(e, want, d.am.buf[10000:13000])
	}
}
