package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var postCases = []testCase{
	{"and-poll", 0, postAndPoll},
	{"receive-by-state", 0, postReceiveByState},
	{"send-by-state", 0, postSendByState},
	{"drained", 0, postDrained},
	{"list", 0, postList},
	{"full", 0, postFull},
	{"slots", 0, postSlots},
	{"pieces", 0, postPieces},
	{"inline", 0, postInline},
	{"inline-many", 0, postInlineMany},
	{"inline-limit", 0, postInlineLimit},
	{"inline-opcodes", 0, postInlineOpcodes},
	{"opcodes", 0, postOpcodes},
	{"reuse", 0, postReuse},
}

// postReceiveByState: refused in Reset, taken from Init on; in Err it is flushed.
func postReceiveByState(e *env) {
	s := e.sides[0]
	peer := e.sides[1].qp(defaults(verbs.RC))
	m := s.mem(64, everything)
	for _, t := range []verbs.QPType{verbs.RC, verbs.UD} {
		for state := range ways {
			q := s.in(defaults(t), state, peer)
			n, st := q.PostRecv([]verbs.RecvWR{recvWR(7, m.sge(0, 64))})
			if state == verbs.StateReset {
				require.Equal(e, ucs.InvalidParam, st)
				require.Zero(e, n)
				continue
			}
			require.Equal(e, ucs.OK, st, "%v", state)
			if state == verbs.StateErr {
				q.receivedAs(7, verbs.WCFlushErr)
			}
		}
	}
}

// postSendByState: refused before RTS; in Err it is flushed.
func postSendByState(e *env) {
	s := e.sides[0]
	peer := e.sides[1].qp(defaults(verbs.RC))
	ah := s.ah(e.sides[1])
	m := s.mem(64, everything)
	for _, t := range []verbs.QPType{verbs.RC, verbs.UD} {
		for _, state := range []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateErr} {
			q := s.in(defaults(t), state, peer)
			w := datagram(3, peer, ah, m.sge(0, 8))
			if state != verbs.StateErr {
				q.refuses(w, "%v", state)
				continue
			}
			q.send(w, flagged(w, 0)) // unsignalled ones complete, too
			q.sentAs(3, verbs.WCFlushErr)
			q.sentAs(3, verbs.WCFlushErr)
		}
	}
}

// postDrained: in SQD requests are queued and carried out after RTS; receives go
// on.
func postDrained(e *env) {
	d := e.rc(nil)
	d.a.to(verbs.StateSQD, nil)
	want := d.am.fill(100, 3)
	d.a.send(at(request(1, verbs.OpWrite, d.am.sge(0, 100)), d.bm, 0))
	d.a.receive(2, d.am.sge(1000, 100))
	d.b.send(request(3, verbs.OpSend, d.bm.sge(500, 10)))
	d.b.sent(3)
	d.a.received(2)
	e.settle()
	d.a.nothing("drained")
	require.Zero(e, d.bm.buf[1])
	require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	d.a.sent(1)
	require.Equal(e, want, d.bm.buf[:100])
}

// postList: what stands before a bad request is carried out.
func postList(e *env) {
	d := e.rc(nil)
	good := at(request(1, verbs.OpWrite, d.am.sge(0, 8)), d.bm, 0)
	bad := good
	bad.Op = 99
	n, st := d.a.PostSend([]verbs.SendWR{good, good, bad, good})
	require.Equal(e, ucs.InvalidParam, st)
	require.Equal(e, 2, n)
	d.a.sent(1)
	d.a.sent(1)
	many := recvWR(2)
	many.NumSG = verbs.MaxSGE + 1
	n, st = d.b.PostRecv([]verbs.RecvWR{recvWR(1, d.bm.sge(0, 8)), many, recvWR(3)})
	require.Equal(e, ucs.InvalidParam, st)
	require.Equal(e, 1, n)
	d.a.send(request(4, verbs.OpSend, d.am.sge(0, 8)))
	d.b.received(1)
	d.a.sent(4)
	n, st = d.a.PostSend(nil)
	require.Equal(e, ucs.OK, st)
	require.Zero(e, n)
}

// postFull: a queue takes at least what it has room for; then it is NoResource,
// and what was taken is carried out.
func postFull(e *env) {
	d := e.rc(func(a, b *setup) { a.caps.MaxSend, b.caps.MaxRecv = 8, 8; a.sendCQ = e.sides[0].cq(4096) })
	sends, recvs := d.a.Query().Caps.MaxSend, d.b.Query().Caps.MaxRecv
	rw := make([]verbs.RecvWR, recvs+1)
	for i := range rw {
		rw[i] = recvWR(uint64(i), d.bm.sge(0, 8))
	}
	n, st := d.b.PostRecv(rw)
	require.Equal(e, ucs.NoResource, st)
	require.Equal(e, recvs, n)

	d.a.to(verbs.StateSQD, nil) // nothing leaves the queue
	sw := make([]verbs.SendWR, sends+1)
	for i := range sw {
		sw[i] = at(request(uint64(i), verbs.OpWrite, d.am.sge(0, 8)), d.bm, 0)
	}
	n, st = d.a.PostSend(sw)
	require.Equal(e, ucs.NoResource, st)
	require.Equal(e, sends, n)
	require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	for i := range sends {
		d.a.sent(uint64(i))
	}
	n, st = d.a.PostSend(sw[:sends])
	require.Equal(e, ucs.OK, st, "after its completions")
	require.Equal(e, sends, n)
}

// postSlots: unsignalled requests give their places back with a later completion.
func postSlots(e *env) {
	d := e.rc(func(a, _ *setup) { a.caps.MaxSend = 8 })
	w := at(request(1, verbs.OpWrite, d.am.sge(0, 8)), d.bm, 0)
	for range 20 {
		for range 7 {
			d.a.send(flagged(w, 0))
		}
		d.a.send(w)
		d.a.sent(1)
	}
	d.a.nothing("unsignalled")
}

// postPieces: more pieces than the queue pair has are refused.
func postPieces(e *env) {
	d := e.rc(nil)
	w := at(request(1, verbs.OpWrite), d.bm, 0)
	r := recvWR(1)
	caps := d.a.Query().Caps
	for n := range uint8(255) {
		w.NumSG, r.NumSG = n, n
		if int(n) > min(caps.MaxSendSGE, verbs.MaxSGE) {
			d.a.refuses(w, "%d pieces", n)
		}
		if int(n) > min(caps.MaxRecvSGE, verbs.MaxSGE) {
			_, st := d.a.PostRecv([]verbs.RecvWR{r})
			require.Equal(e, ucs.InvalidParam, st, "%d pieces", n)
		}
	}
}

// inlines gives the queue pair sizes for inline data, where the device has some.
func (e *env) inlines() *duo {
	e.Helper()
	most := e.sides[0].Attr().MaxInline
	if most == 0 {
		e.notApplicable("no inline data")
	}
	return e.rc(func(a, _ *setup) { a.caps.MaxInline = min(most, 220) })
}

// postInline: the memory is free when the post returns.
func postInline(e *env) {
	d := e.inlines()
	const flags = verbs.SendInline | verbs.SendSignaled
	for _, n := range inlineLengths(d.a.Query().Caps.MaxInline) {
		for _, op := range []verbs.Opcode{verbs.OpWrite, verbs.OpWriteImm, verbs.OpSend, verbs.OpSendImm} {
			clear(d.bm.buf[:inlineArea])
			d.b.receive(1, d.bm.sge(0, inlineArea))
			want := append([]byte{}, d.am.fill(n, byte(op)+1)...)
			w := flagged(at(request(2, op, d.am.sge(0, n)), d.bm, 0), flags)
			d.a.send(w)
			clear(d.am.buf[:n])
			d.a.sent(2)
			require.Equal(e, want, d.bm.buf[:n], "%v of %d bytes", op, n)
			if op == verbs.OpWrite {
				d.a.send(request(3, verbs.OpSend)) // takes the receive
				d.a.sent(3)
			}
			d.b.received(1)
		}
	}
	w := flagged(at(request(4, verbs.OpWrite), d.bm, 0), flags)
	for n := range min(verbs.InlineLen, d.a.Query().Caps.MaxInline) + 1 {
		copy(w.Inline[:], pattern(n, 77))
		w.InlineLen = uint8(n)
		d.a.send(w)
		d.a.sent(4)
		require.Equal(e, w.Inline[:n], d.bm.buf[:n], "data in the request")
	}
}

// inlineArea is the memory for inline messages, and bounds their lengths.
const inlineArea = 256

// inlineLengths returns lengths up to that of the longest inline message, around the most that
// a work request holds.
func inlineLengths(most int) (all []int) {
	for _, n := range []int{0, 1, 8, verbs.InlineLen - 1, verbs.InlineLen, verbs.InlineLen + 1, 100} {
		if n < most {
			all = append(all, n)
		}
	}
	return append(all, min(most, inlineArea))
}

// postInlineMany: a list of inline messages, each of its own data, goes from one area whose
// content changes right after each post, while the queue grows.
func postInlineMany(e *env) {
	d := e.inlines()
	most := min(d.a.Query().Caps.MaxInline, inlineArea)
	all := min(24, d.a.Query().Caps.MaxSend)
	w := flagged(at(request(0, verbs.OpWrite, d.am.sge(0, most)), d.bm, 0), verbs.SendInline|verbs.SendSignaled)
	for i := range all {
		d.am.fill(most, byte(i))
		w.ID, w.Remote = uint64(i), d.bm.Addr()+uint64(i*most)
		d.a.send(w)
	}
	d.am.fill(most, 99)
	for i := range all {
		d.a.sent(uint64(i))
		require.Equal(e, pattern(most, byte(i)), d.bm.buf[i*most:(i+1)*most], "message %d", i)
	}
}

// postInlineLimit: more than the queue pair takes is refused.
func postInlineLimit(e *env) {
	d := e.inlines()
	most := d.a.Query().Caps.MaxInline
	w := flagged(at(request(1, verbs.OpWrite, d.am.sge(0, most+1)), d.bm, 0), verbs.SendInline)
	d.a.refuses(w, "%d bytes inline", most+1)
	w.NumSG, w.SG[0].Len, w.SG[1] = 2, uint32(most), d.am.sge(0, 1)
	d.a.refuses(w, "%d bytes inline in two pieces", most+1)
	w.NumSG, w.InlineLen = 0, verbs.InlineLen+1
	d.a.refuses(w, "more than the request holds")
}

// postInlineOpcodes: what fetches data takes none.
func postInlineOpcodes(e *env) {
	d := e.inlines()
	for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpCompareSwap, verbs.OpFetchAdd} {
		d.a.refuses(flagged(at(request(1, op, d.am.sge(0, 8)), d.bm, 0), verbs.SendInline), "%v", op)
	}
}

// postOpcodes: each type of queue pair takes what it has.
func postOpcodes(e *env) {
	d, u := e.rc(nil), e.ud(nil)
	ah := e.sides[0].ah(e.sides[1])
	for op := range verbs.Opcode(40) {
		if op > verbs.OpSendInv {
			d.a.refuses(request(1, op), "%v", op)
		}
		if op != verbs.OpSend && op != verbs.OpSendImm {
			w := datagram(1, u.b, ah, u.am.sge(0, 8))
			w.Op = op
			u.a.refuses(w, "%v on a datagram queue pair", op)
		}
	}
}

// postReuse: requests themselves are free when the post returns.
func postReuse(e *env) {
	d := e.rc(nil)
	rw := []verbs.RecvWR{recvWR(1, d.bm.sge(0, 8))}
	_, st := d.b.PostRecv(rw)
	require.Equal(e, ucs.OK, st)
	rw[0] = verbs.RecvWR{ID: 99}
	sw := []verbs.SendWR{request(2, verbs.OpSend, d.am.sge(0, 8))}
	d.a.send(sw...)
	sw[0] = verbs.SendWR{ID: 98, Op: 99}
	d.a.sent(2)
	require.EqualValues(e, 8, d.b.received(1).Len)
}

// postAndPoll: one call posts and polls, as the two calls do: it polls also where a request is
// refused.
func postAndPoll(e *env) {
	d := e.rc(nil)
	d.a.sendCQ.paused = true
	var done []verbs.WC
	wcs := make([]verbs.WC, 4)
	take := func(posted int, st ucs.Status, polled int) (int, ucs.Status) {
		require.GreaterOrEqual(e, polled, 0)
		done = append(done, wcs[:polled]...)
		return posted, st
	}
	want := append([]byte{}, d.am.fill(100, 9)...)
	n, st := take(verbs.PostSendPoll(d.a.QP, []verbs.SendWR{d.write(1), at(request(2, verbs.OpWrite, d.am.sge(0, 100)), d.bm, 0)}, d.a.sendCQ.CQ, wcs))
	require.Equal(e, ucs.OK, st)
	require.Equal(e, 2, n)
	e.until("both completions", func() bool {
		n, st := take(verbs.PostSendPoll(d.a.QP, nil, d.a.sendCQ.CQ, wcs))
		require.Equal(e, ucs.OK, st)
		require.Zero(e, n)
		return len(done) == 2
	})
	require.Equal(e, want, d.bm.buf[:100])
	for i, w := range done {
		require.EqualValues(e, i+1, w.ID)
		require.Equal(e, verbs.WCSuccess.String(), w.Status.String())
	}
	bad := d.write(4)
	bad.Op = 99
	done = nil
	n, st = take(verbs.PostSendPoll(d.a.QP, []verbs.SendWR{d.write(3), bad, d.write(5)}, d.a.sendCQ.CQ, wcs))
	require.Equal(e, ucs.InvalidParam, st)
	require.Equal(e, 1, n)
	e.until("the completion", func() bool {
		take(verbs.PostSendPoll(d.a.QP, nil, d.a.sendCQ.CQ, wcs))
		return len(done) == 1
	})
	require.EqualValues(e, 3, done[0].ID)
	d.a.sendCQ.paused = false
}
