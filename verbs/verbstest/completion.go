package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/wire"
)

var completionCases = []testCase{
	{"unsignalled", 0, completionUnsignalled},
	{"unsignalled-error", 0, completionUnsignalledError},
	{"signal-all", 0, completionSignalAll},
	{"opcodes", 0, completionOpcodes},
	{"receive-fields", 0, completionReceiveFields},
	{"write-imm", 0, completionWriteImm},
	{"order", 0, completionOrder},
	{"shared-cq", 0, completionSharedCQ},
	{"flush-after-error", 0, completionFlushAfterError},
	{"flush-by-err", 0, completionFlushByErr},
	{"silence-after-reset", 0, completionSilence},
	{"silence-after-close", 0, completionSilenceAfterClose},
	{"solicited-bit", Packets, completionSolicitedBit},
	{"solicited-write", Packets, completionSolicitedWrite},
}

// write is a signalled write of 8 bytes.
func (d *duo) write(id uint64) verbs.SendWR {
	return at(request(id, verbs.OpWrite, d.am.sge(0, 8)), d.bm, 0)
}

// badWrite is a write that the peer refuses.
func (d *duo) badWrite(id uint64) verbs.SendWR {
	w := d.write(id)
	w.RKey ^= 0x55
	return w
}

func completionUnsignalled(e *env) {
	d := e.rc(nil)
	d.a.send(flagged(d.write(1), 0), flagged(d.write(2), 0), d.write(3))
	d.a.sent(3)
	d.a.nothing("unsignalled")
}

// completionUnsignalledError: what fails is always told.
func completionUnsignalledError(e *env) {
	d := e.rc(nil)
	d.a.send(flagged(d.write(1), 0), flagged(d.badWrite(2), 0), flagged(d.write(3), 0))
	d.a.sentAs(2, verbs.WCRemAccessErr)
	d.a.sentAs(3, verbs.WCFlushErr)
}

func completionSignalAll(e *env) {
	d := e.rc(func(a, _ *setup) { a.signalAll = true })
	for i := range uint64(5) {
		d.a.send(flagged(d.write(i), 0))
	}
	for i := range uint64(5) {
		d.a.sent(i)
	}
}

// completionOpcodes: a completion tells what ended.
func completionOpcodes(e *env) {
	d := e.rc(nil)
	for op, want := range map[verbs.Opcode]verbs.WCOpcode{
		verbs.OpSend: verbs.WCSend, verbs.OpSendImm: verbs.WCSend, verbs.OpWrite: verbs.WCWrite, verbs.OpWriteImm: verbs.WCWrite,
		verbs.OpRead: verbs.WCRead, verbs.OpFetchAdd: verbs.WCFetchAdd, verbs.OpCompareSwap: verbs.WCCompareSwap,
	} {
		takes := op == verbs.OpSend || op == verbs.OpSendImm || op == verbs.OpWriteImm
		if takes {
			d.b.receive(1, d.bm.sge(0, 64))
		}
		d.a.send(at(request(2, op, d.am.sge(0, 8)), d.bm, 0))
		w := d.a.sent(2)
		require.Equal(e, want.String(), w.Op.String())
		require.Equal(e, d.a.QPN(), w.QPN)
		if takes {
			d.b.received(1)
		}
	}
}

// completionReceiveFields: length, kind, immediate data and queue pair.
func completionReceiveFields(e *env) {
	d := e.rc(nil)
	const mask = verbs.WCWithImm | verbs.WCWithInv
	for op, want := range map[verbs.Opcode]verbs.WC{
		verbs.OpSend:     {Op: verbs.WCRecv},
		verbs.OpSendImm:  {Op: verbs.WCRecv, Flags: verbs.WCWithImm},
		verbs.OpWriteImm: {Op: verbs.WCRecvImm, Flags: verbs.WCWithImm},
	} {
		for _, n := range []int{0, 5, 1024, 5000} {
			d.b.receive(1, d.bm.sge(0, 6000))
			w := at(request(2, op, d.am.sge(0, n)), d.bm, 0)
			w.Imm = 0xa1b2c3d4
			d.a.send(w)
			got := d.b.received(1)
			d.a.sent(2)
			require.Equal(e, want.Op.String(), got.Op.String(), "%v", op)
			require.Equal(e, want.Flags, got.Flags&mask, "%v", op)
			require.EqualValues(e, n, got.Len, "%v", op)
			require.Equal(e, d.b.QPN(), got.QPN)
			if want.Flags != 0 {
				require.EqualValues(e, 0xa1b2c3d4, got.Imm, "%v", op)
			}
		}
	}
}

// completionWriteImm: it takes one receive and leaves that one's memory alone.
func completionWriteImm(e *env) {
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(1000, 4))
	d.b.receive(2)
	want := d.am.fill(3000, 8)
	d.a.send(at(request(3, verbs.OpWriteImm, d.am.sge(0, 3000)), d.bm, 5000), at(request(4, verbs.OpWriteImm), d.bm, 0))
	d.a.sent(3)
	d.a.sent(4)
	require.EqualValues(e, 3000, d.b.received(1).Len)
	require.EqualValues(e, 0, d.b.received(2).Len)
	require.Equal(e, want, d.bm.buf[5000:8000])
	require.Equal(e, make([]byte, 4), d.bm.buf[1000:1004])
}

// completionOrder: requests of one queue pair end in their order, whatever they
// are.
func completionOrder(e *env) {
	d := e.rc(nil)
	for round := range 10 {
		for i := range uint64(10) {
			d.b.receive(i, d.bm.sge(100000, 4000))
		}
		for i := range uint64(20) {
			op := []verbs.Opcode{verbs.OpRead, verbs.OpSend, verbs.OpFetchAdd, verbs.OpWrite}[i%4]
			n := 8
			if op != verbs.OpFetchAdd {
				n = int(i*uint64(round)*7) % 3000
			}
			if op == verbs.OpSend || op == verbs.OpWrite {
				op -= verbs.Opcode(i % 2)
			}
			if i%2 == 1 {
				op = verbs.OpSend
			}
			d.a.send(at(request(i, op, d.am.sge(int(i)*4096, n)), d.bm, 0))
		}
		for i := range uint64(20) {
			d.a.sent(i)
		}
		for i := range uint64(10) {
			d.b.received(i)
		}
	}
}

// completionSharedCQ: many queue pairs complete into one queue, each in its order.
func completionSharedCQ(e *env) {
	shared := [2]*cq{e.sides[0].cq(512), e.sides[1].cq(512)}
	var duos []*duo
	for range 8 {
		duos = append(duos, e.rc(func(a, b *setup) {
			a.sendCQ, a.recvCQ, b.sendCQ, b.recvCQ = shared[0], shared[0], shared[1], shared[1]
		}))
	}
	for i := range uint64(16) {
		for _, d := range duos {
			d.b.receive(i, d.bm.sge(0, 8))
			d.a.send(request(i, verbs.OpSend, d.am.sge(0, 8)))
		}
	}
	for _, d := range duos {
		for i := range uint64(16) {
			d.a.sent(i)
			d.b.received(i)
		}
	}
}

// completionFlushAfterError: the first one that fails says why, all behind it, and
// all receives, are flushed in order, at both ends.
func completionFlushAfterError(e *env) {
	d := e.rc(nil)
	for i := range uint64(5) {
		d.a.receive(i, d.am.sge(0, 8))
		d.b.receive(i, d.bm.sge(0, 8))
	}
	d.a.send(d.write(0), d.badWrite(1), d.write(2), at(request(3, verbs.OpRead, d.am.sge(0, 8)), d.bm, 0), request(4, verbs.OpSend))
	d.a.sent(0)
	d.a.sentAs(1, verbs.WCRemAccessErr)
	for i := uint64(2); i < 5; i++ {
		d.a.sentAs(i, verbs.WCFlushErr)
	}
	for i := range uint64(5) {
		d.a.receivedAs(i, verbs.WCFlushErr)
		d.b.receivedAs(i, verbs.WCFlushErr)
	}
	require.Equal(e, verbs.StateErr.String(), d.a.state().String())
	require.Equal(e, verbs.StateErr.String(), d.b.state().String())
	d.a.send(d.write(9))
	d.a.sentAs(9, verbs.WCFlushErr)
}

// completionFlushByErr: Modify to Err flushes all that is outstanding, in order.
func completionFlushByErr(e *env) {
	d := e.rc(nil)
	d.a.to(verbs.StateSQD, nil)
	for i := range uint64(10) {
		d.a.receive(i, d.am.sge(0, 8))
		d.a.send(flagged(d.write(i), 0))
	}
	d.a.to(verbs.StateErr, nil)
	for i := range uint64(10) {
		d.a.sentAs(i, verbs.WCFlushErr)
		d.a.receivedAs(i, verbs.WCFlushErr)
	}
	e.settle()
	d.a.nothing("all was flushed once")
}

// completionSilence: Reset discards all completions, also those that are not polled yet.
func completionSilence(e *env) {
	d := e.rc(nil)
	for i := range uint64(5) {
		d.a.receive(i, d.am.sge(0, 8))
		d.b.receive(i, d.bm.sge(0, 8))
		d.a.send(request(i, verbs.OpSend, d.am.sge(0, 8)))
		d.a.sent(i)
	}
	d.a.sendCQ.paused = true // the completions stay in the queue
	seen := len(d.b.recvCQ.done)
	d.a.send(request(7, verbs.OpWrite))
	for i := range uint64(4) {
		d.b.send(request(i, verbs.OpSend, d.bm.sge(0, 8)))
		d.b.sent(i) // so one receive is left, and the write has ended
		d.a.received(i)
	}
	e.settle()
	d.a.to(verbs.StateReset, nil)
	d.b.to(verbs.StateReset, nil)
	d.a.sendCQ.paused = false
	e.settle()
	require.Len(e, d.b.recvCQ.done, max(seen, 5), "gathered before")
	d.a.nothing("after reset")
	d.a.ready(d.b)
	d.b.ready(d.a)
	d.b.receive(21, d.bm.sge(0, 8))
	d.a.send(request(20, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(20)
	d.b.recvCQ.done = nil
	e.settle()
}

// completionSilenceAfterClose: a queue pair that was closed has no completions.
func completionSilenceAfterClose(e *env) {
	d := e.rc(nil)
	d.b.receive(1, d.bm.sge(0, 8))
	d.a.receive(2, d.am.sge(0, 8))
	d.a.sendCQ.paused, d.b.recvCQ.paused = true, true
	d.a.send(request(3, verbs.OpSend, d.am.sge(0, 8)), d.write(4))
	e.settle()
	require.NoError(e, d.a.Close())
	require.NoError(e, d.b.Close())
	d.a.sendCQ.paused, d.b.recvCQ.paused = false, false
	e.settle()
	d.a.nothing("after close")
	d.b.nothing("after close")
}

// completionSolicitedBit: it stands on the last packet of what takes a receive,
// where the request says so.
func completionSolicitedBit(e *env) {
	d := e.rc(nil)
	t := e.watch(nil)
	for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWriteImm} {
		for _, flags := range []verbs.SendFlags{verbs.SendSignaled, verbs.SendSignaled | verbs.SendSolicited} {
			for _, n := range []int{8, 3000} {
				t.mu.Lock()
				t.list = nil
				t.mu.Unlock()
				d.b.receive(1, d.bm.sge(0, 3000))
				d.a.send(flagged(at(request(2, op, d.am.sge(0, n)), d.bm, 0), flags))
				d.a.sent(2)
				d.b.received(1)
				for _, s := range t.requests(0) {
					want := flags&verbs.SendSolicited != 0 && s.Place.Ends()
					require.Equal(e, want, s.se, "%v: %v", op, s.op)
				}
			}
		}
	}
}

// completionSolicitedWrite: a write without immediate data raises no event at the target.
func completionSolicitedWrite(e *env) {
	d := e.rc(nil)
	t := e.watch(nil)
	d.a.send(flagged(d.write(1), verbs.SendSignaled|verbs.SendSolicited))
	d.a.sent(1)
	require.Empty(e, t.find(func(s *seen) bool { return s.op == wire.WriteOnly && s.se }), "a write solicits nothing")
}
