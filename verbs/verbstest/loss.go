package verbstest

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var lossCases = []testCase{
	{"drop-each", Packets, func(e *env) { lossEach(e, Verdict{Drop: true}) }},
	{"corrupt-each", Packets, func(e *env) { lossEach(e, Verdict{Corrupt: true}) }},
	{"copy-each", Packets, func(e *env) { lossEach(e, Verdict{Copies: 1}) }},
	{"delay-each", Packets, func(e *env) { lossEach(e, Verdict{Delay: 300 * time.Microsecond}) }},
	{"random", Packets, lossRandom},
	{"blackout", Packets, lossBlackout},
	{"one-nak", Packets, lossOneNak},
	{"read-resumes", Packets, lossReadResumes},
	{"atomic-once", Packets, lossAtomicOnce},
	{"duplicate-read", Packets, lossDuplicateRead},
	{"last-ack-counts", Packets, lossLastAckCounts},
	{"acks-stand-for-many", Packets, lossAcksStand},
	{"error-is-told-again", Packets, lossErrorAgain},
}

// lossEach carries out an exchange of all operations as often as it has packets,
// and treats another one of them each time. The outcome is always the same.
func lossEach(e *env, v Verdict) {
	for i := 0; ; i++ {
		d := e.rc(func(a, b *setup) {
			e.brisk(7)(a, b)
			a.psn = 0xfffffa
		})
		met, count := false, 0
		e.watch(func(*seen) Verdict {
			count++
			if count-1 != i {
				return Verdict{}
			}
			met = true
			return v
		})
		d.exchange()
		e.settle()
		d.a.nothing("the exchange")
		d.b.nothing("the exchange")
		e.fabric.Filter(nil)
		if !met {
			require.Greater(e, i, 10, "packets of the exchange")
			return
		}
		require.NoError(e, d.a.Close())
		require.NoError(e, d.b.Close())
	}
}

// exchange carries out every operation once and checks what it did.
func (d *duo) exchange() {
	d.Helper()
	sent := append([]byte{}, d.am.fill(12000, 3)...)
	read := append([]byte{}, pattern(3000, 9)...)
	copy(d.bm.buf[50000:], read)
	native.PutUint64(d.bm.buf[60000:], 40)
	for i := range uint64(3) {
		d.b.receive(i, d.bm.sge(int(i)*4000, 4000))
	}
	imm := at(request(5, verbs.OpWriteImm, d.am.sge(9000, 100)), d.bm, 30000)
	imm.Imm = 0x99
	add := at(request(3, verbs.OpFetchAdd, d.am.sge(100000, 8)), d.bm, 60000)
	add.Swap = 2
	d.a.send(
		request(0, verbs.OpSend, d.am.sge(0, 2500)),
		at(request(1, verbs.OpWrite, d.am.sge(3000, 2500)), d.bm, 20000),
		at(request(2, verbs.OpRead, d.am.sge(70000, 3000)), d.bm, 50000),
		add,
		request(4, verbs.OpSend, d.am.sge(6000, 10)),
		imm,
	)
	for i := range uint64(6) {
		d.a.sent(i)
	}
	require.EqualValues(d, 2500, d.b.received(0).Len)
	require.EqualValues(d, 10, d.b.received(1).Len)
	w := d.b.received(2)
	require.Equal(d, [2]uint32{100, 0x99}, [2]uint32{w.Len, w.Imm})
	require.Equal(d, sent[:2500], d.bm.buf[:2500], "sent")
	require.Equal(d, sent[3000:5500], d.bm.buf[20000:22500], "written")
	require.Equal(d, read, d.am.buf[70000:73000], "read")
	require.Equal(d, [2]uint64{40, 42}, [2]uint64{native.Uint64(d.am.buf[100000:]), native.Uint64(d.bm.buf[60000:])}, "added")
	require.Equal(d, sent[6000:6010], d.bm.buf[4000:4010], "sent")
	require.Equal(d, sent[9000:9100], d.bm.buf[30000:30100], "written with immediate data")
}

// lossRandom: a stream and exchanges under everything at once.
func lossRandom(e *env) {
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := e.rc(func(a, b *setup) {
			e.brisk(7)(a, b)
			a.psn = 0xffff80
		})
		e.watch(func(*seen) Verdict {
			switch r.IntN(40) {
			case 0:
				return Verdict{Drop: true}
			case 1:
				return Verdict{Copies: 1 + r.IntN(3)}
			case 2:
				return Verdict{Corrupt: true}
			case 3:
				return Verdict{Delay: time.Duration(r.IntN(200)) * time.Microsecond}
			}
			return Verdict{}
		})
		d.stream(200, 1500)
		e.fabric.Filter(nil)
		for _, q := range []*qp{d.a, d.b} {
			require.NoError(e, q.Close())
		}
	}
}

// lossBlackout: nothing comes through for a while, and then all goes on.
func lossBlackout(e *env) {
	d := e.rc(func(a, _ *setup) { a.timeout = 12 })
	end := e.now().Add(20 * time.Millisecond)
	e.watch(func(s *seen) Verdict { return Verdict{Drop: s.at.Before(end)} })
	d.stream(20, 2000)
}

// lossOneNak: a gap causes one NAK, not one for every packet behind it.
func lossOneNak(e *env) {
	d := e.rc(nil)
	lost := false
	t := e.watch(func(s *seen) Verdict {
		if s.from == 0 && s.op == wire.WriteMiddle && !lost {
			lost = true
			return Verdict{Drop: true}
		}
		return Verdict{}
	})
	want := d.am.fill(20000, 2)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 20000)), d.bm, 0))
	d.a.sent(1)
	require.Equal(e, want, d.bm.buf[:20000])
	naks := t.acks(1, func(s wire.Syndrome) bool { return s == wire.NakSequence })
	require.Len(e, naks, 1)
	require.Equal(e, d.a.psn.Add(1), naks[0].psn, "what is missing")
}

// lossReadResumes: of a read whose answer lacks a packet, only the rest is asked
// for again.
func lossReadResumes(e *env) {
	d := e.rc(e.brisk(7))
	answers := 0
	t := e.watch(func(s *seen) Verdict {
		if s.Kind != wire.KindReadResponse {
			return Verdict{}
		}
		answers++
		return Verdict{Drop: answers == 3}
	})
	want := append([]byte{}, d.bm.fill(6000, 2)...)
	d.a.send(at(request(1, verbs.OpRead, d.am.sge(0, 6000)), d.bm, 0))
	d.a.sent(1)
	require.Equal(e, want, d.am.buf[:6000])
	asked := t.requests(0)
	require.GreaterOrEqual(e, len(asked), 2)
	again := asked[len(asked)-1]
	require.Equal(e, d.bm.Addr()+2048, again.addr)
	require.EqualValues(e, 6000-2048, again.length)
	require.Equal(e, d.a.psn.Add(2), again.psn)
}

// lossAtomicOnce: an atomic whose response is lost is not executed again; the saved response is
// retransmitted.
func lossAtomicOnce(e *env) {
	for _, op := range []verbs.Opcode{verbs.OpFetchAdd, verbs.OpCompareSwap} {
		d := e.rc(e.brisk(7))
		lost := 0
		e.watch(func(s *seen) Verdict {
			if s.op != wire.AtomicAcknowledge {
				return Verdict{}
			}
			lost++
			return Verdict{Drop: lost < 4}
		})
		native.PutUint64(d.bm.buf, 70)
		require.EqualValues(e, 70, d.atomic(op, 0, 70, 1))
		want := uint64(71)
		if op == verbs.OpCompareSwap {
			want = 1
		}
		require.Equal(e, want, native.Uint64(d.bm.buf))
		require.GreaterOrEqual(e, lost, 4)
	}
}

// lossDuplicateRead: a read that is asked again is answered again.
func lossDuplicateRead(e *env) {
	d := e.rc(nil)
	t := e.watch(func(s *seen) Verdict {
		if s.op == wire.ReadRequest {
			return Verdict{Copies: 1}
		}
		return Verdict{}
	})
	want := append([]byte{}, d.bm.fill(3000, 2)...)
	d.a.send(at(request(1, verbs.OpRead, d.am.sge(0, 3000)), d.bm, 0))
	d.a.sent(1)
	require.Equal(e, want, d.am.buf[:3000])
	e.settle()
	answers := len(t.find(func(s *seen) bool { return s.Kind == wire.KindReadResponse }))
	require.Contains(e, []int{3, 6}, answers, "3 where the second came before the first was answered")
	d.a.nothing("once")
	d.stream(10, 100)
}

// lossLastAckCounts: an acknowledgement stands for all before it.
func lossLastAckCounts(e *env) {
	d := e.rc(nil)
	end := d.a.psn.Add(9)
	e.watch(func(s *seen) Verdict {
		return Verdict{Drop: s.from == 1 && s.op == wire.Acknowledge && s.psn.Before(end)}
	})
	for i := range uint64(10) {
		d.a.send(d.write(i))
	}
	for i := range uint64(10) {
		d.a.sent(i)
	}
}

// lossAcksStand: messages that ask for no completion are not acknowledged one by
// one.
func lossAcksStand(e *env) {
	d := e.rc(nil)
	t := e.watch(nil)
	list := make([]verbs.SendWR, 16)
	for i := range list {
		list[i] = flagged(d.write(uint64(i)), 0)
	}
	list[15] = d.write(15)
	d.a.send(list...)
	d.a.sent(15)
	acks := len(t.acks(1, wire.Syndrome.IsAck))
	require.Positive(e, acks)
	require.LessOrEqual(e, acks, 16)
	for _, s := range t.acks(1, wire.Syndrome.IsAck) {
		require.Equal(e, d.a.QPN(), s.dest)
	}
}

// lossErrorAgain: the refusal of a request is not lost with its packet.
func lossErrorAgain(e *env) {
	d := e.rc(e.brisk(3))
	e.watch(func(s *seen) Verdict { return Verdict{Drop: s.from == 1 && s.op == wire.Acknowledge && s.syn.IsNak()} })
	d.a.send(d.badWrite(1), d.write(2))
	d.a.sentAs(1, verbs.WCRetryExcErr, verbs.WCRemAccessErr) // the other end is in Err and silent
	d.a.sentAs(2, verbs.WCFlushErr)
	d.b.fails()
}
