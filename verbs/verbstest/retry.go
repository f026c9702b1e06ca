package verbstest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var retryCases = []testCase{
	{"receiver-late", 0, retryReceiverLate},
	{"receiver-never", Packets, retryReceiverNever},
	{"receiver-timer", Packets, retryReceiverTimer},
	{"receiver-pauses", Packets, retryReceiverPauses},
	{"receiver-counts-anew", 0, retryReceiverAnew},
	{"peer-gone", 0, retryPeerGone},
	{"peer-silent", Packets, retryPeerSilent},
	{"exact-count", Packets, retryExactCount},
	{"counts-anew", Packets, retryAnew},
	{"no-time-out", Packets, retryNoTimeout},
	{"after-a-pause", Packets, retryAfterPause},
}

// retryReceiverLate: a message waits until there is a receive for it, however
// long, and those behind it with it.
func retryReceiverLate(e *env) {
	for _, n := range []int{8, 3000} {
		d := e.rc(nil)
		want := append([]byte{}, d.am.fill(n, 1)...)
		d.a.send(request(1, verbs.OpSend, d.am.sge(0, n)), at(request(2, verbs.OpWriteImm), d.bm, 0), d.write(3))
		e.settle()
		d.a.nothing("no receive")
		d.b.receive(1, d.bm.sge(1000, n))
		d.a.sent(1)
		d.b.received(1)
		require.Equal(e, want, d.bm.buf[1000:1000+n])
		e.settle()
		d.a.nothing("no second receive")
		d.b.receive(2)
		d.b.received(2)
		d.a.sent(2)
		d.a.sent(3)
	}
}

// retryReceiverNever: RNRRetry waits, then it fails. The other end does not.
func retryReceiverNever(e *env) {
	for _, count := range []uint8{0, 1, 3, 6} {
		d := e.rc(func(a, _ *setup) { a.rnrRetry = count })
		t := e.watch(nil)
		d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)), d.write(2))
		d.a.sentAs(1, verbs.WCRNRRetryExcErr)
		d.a.sentAs(2, verbs.WCFlushErr)
		d.a.fails()
		require.Equal(e, verbs.StateRTS.String(), d.b.state().String())
		require.Len(e, t.find(func(s *seen) bool { return s.from == 0 && s.op == wire.SendOnly }), int(count)+1)
		require.Len(e, t.acks(1, wire.Syndrome.IsRNR), int(count)+1)
	}
}

// retryReceiverTimer: the sender waits as long as the receiver says.
func retryReceiverTimer(e *env) {
	for _, code := range []uint8{1, 8, 9, 10, 11, 12, 13, 14, 18} {
		d := e.rc(func(a, b *setup) { a.rnrRetry, b.rnrWait = 2, code })
		t := e.watch(nil)
		e.away(2 * wire.RNRTimer(code)) // a program that computed for a while
		d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)))
		d.a.sentAs(1, verbs.WCRNRRetryExcErr)
		naks, sends := t.acks(1, wire.Syndrome.IsRNR), t.requests(0)
		require.Len(e, naks, 3)
		require.Len(e, sends, 3)
		wait := wire.RNRTimer(code)
		for i := range 2 {
			require.Equal(e, code, naks[i].syn.Code())
			got := sends[i+1].at.Sub(naks[i].at)
			require.GreaterOrEqual(e, got, wait-wait/8, "timer code %d", code)
			if e.fabric.Advance != nil {
				require.LessOrEqual(e, got, 4*wait+2*time.Millisecond, "timer code %d", code)
			}
		}
	}
}

// retryReceiverPauses: nothing is sent while the receiver is not ready.
func retryReceiverPauses(e *env) {
	d := e.rc(func(_, b *setup) { b.rnrWait = 20 })
	t := e.watch(nil)
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)))
	e.until("not ready", func() bool { return len(t.acks(1, wire.Syndrome.IsRNR)) > 0 })
	told := t.acks(1, wire.Syndrome.IsRNR)[0].at
	e.settle()
	d.a.send(d.write(2), d.write(3))
	e.settle()
	for _, s := range t.requests(0)[1:] {
		wait := wire.RNRTimer(20)
		require.GreaterOrEqual(e, s.at.Sub(told), wait-wait/8, "while the receiver is not ready")
	}
	d.b.receive(1, d.bm.sge(0, 8))
	for i := range uint64(3) {
		d.a.sent(i + 1)
	}
	d.b.received(1)
}

// retryReceiverAnew: each message has all its waits.
func retryReceiverAnew(e *env) {
	wait := uint8(18)
	if e.fabric.Advance == nil {
		wait = 24 // 41 ms: the receive may be posted late
	}
	d := e.rc(func(a, b *setup) { a.rnrRetry, b.rnrWait = 6, wait })
	for i := range uint64(10) {
		d.a.send(request(i, verbs.OpSend, d.am.sge(0, 8)))
		e.settle() // a third of the wait, in the fabric's time
		d.b.receive(i, d.bm.sge(0, 8))
		d.a.sent(i)
		d.b.received(i)
	}
}

// brisk has failures come soon, but not so soon that a busy machine makes them.
func (e *env) brisk(retry uint8) func(a, b *setup) {
	return func(a, b *setup) {
		for _, c := range []*setup{a, b} {
			c.timeout, c.retry = e.briskCode(), retry
		}
	}
}

func (e *env) briskCode() uint8 {
	if e.fabric.Advance != nil {
		return 8
	}
	return 13
}

// timeout is the time-out of a brisk pair.
func (e *env) timeout() time.Duration { return 4096 * time.Nanosecond << e.briskCode() }

// retryPeerGone: the end of a peer that was closed.
func retryPeerGone(e *env) {
	for _, count := range []uint8{2, 7} { // 7 is the most, and not for ever
		d := e.rc(e.brisk(count))
		require.NoError(e, d.b.Close())
		d.a.receive(5, d.am.sge(0, 8))
		d.a.send(d.write(1), at(request(2, verbs.OpRead, d.am.sge(0, 8)), d.bm, 0), flagged(d.write(3), 0))
		d.a.sentAs(1, verbs.WCRetryExcErr)
		d.a.sentAs(2, verbs.WCFlushErr)
		d.a.sentAs(3, verbs.WCFlushErr)
		d.a.receivedAs(5, verbs.WCFlushErr)
		d.a.fails()
	}
}

// retryPeerSilent: the same where no packet comes through, after the configured
// time and not before.
func retryPeerSilent(e *env) {
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpWrite, verbs.OpRead, verbs.OpFetchAdd} {
		d := e.rc(e.brisk(3))
		e.watch(func(*seen) Verdict { return Verdict{Drop: true} })
		start := e.now()
		d.a.send(at(request(1, op, d.am.sge(0, 8)), d.bm, 0), d.write(2))
		d.a.sentAs(1, verbs.WCRetryExcErr)
		require.GreaterOrEqual(e, e.now().Sub(start), 4*e.timeout())
		d.a.sentAs(2, verbs.WCFlushErr)
		require.Equal(e, verbs.StateRTS.String(), d.b.state().String())
	}
}

// retryExactCount: RetryCnt losses are borne, one more is not.
func retryExactCount(e *env) {
	for _, count := range []uint8{0, 1, 3} {
		for _, more := range []int{0, 1} {
			d := e.rc(func(a, _ *setup) { a.timeout, a.retry = e.briskCode()+1, count })
			left := int(count) + more
			t := e.watch(func(s *seen) Verdict {
				if s.from == 0 && s.request() && left > 0 {
					left--
					return Verdict{Drop: true}
				}
				return Verdict{}
			})
			d.a.send(d.write(1))
			if more == 0 {
				d.a.sent(1)
			} else {
				d.a.sentAs(1, verbs.WCRetryExcErr)
			}
			require.Len(e, t.requests(0), int(count)+1, "%d retries", count)
		}
	}
}

// retryAnew: progress gives all retries back.
func retryAnew(e *env) {
	d := e.rc(func(a, _ *setup) { a.timeout, a.retry = e.briskCode()+3, 1 })
	last := 0
	e.watch(func(s *seen) Verdict {
		if s.from == 0 && int(s.psn) != last { // the first time
			last = int(s.psn)
			return Verdict{Drop: true}
		}
		return Verdict{}
	})
	for i := range uint64(4) {
		d.a.send(d.write(i))
		d.a.sent(i)
	}
}

// retryNoTimeout: Timeout 0 waits for ever.
func retryNoTimeout(e *env) {
	d := e.rc(func(a, _ *setup) { a.timeout = 0 })
	t := e.watch(func(s *seen) Verdict { return Verdict{Drop: s.from == 0} })
	d.a.send(d.write(1))
	e.pass(100 * time.Millisecond)
	d.a.nothing("no answer")
	require.Len(e, t.requests(0), 1)
	require.Equal(e, verbs.StateRTS.String(), d.a.state().String())
}

// retryAfterPause: time-outs count from the sending, also where the device was not polled for long before.
func retryAfterPause(e *env) {
	d := e.rc(func(a, _ *setup) { a.timeout, a.retry = 15, 0 })
	e.watch(func(s *seen) Verdict {
		if s.from == 1 {
			return Verdict{Delay: time.Millisecond}
		}
		return Verdict{}
	})
	for range 2 {
		e.away(400 * time.Millisecond) // three time-outs
		d.a.send(d.write(1))
		d.a.sent(1)
	}
}
