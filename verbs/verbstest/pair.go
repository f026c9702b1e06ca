package verbstest

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// setup is how one end of a pair is made and connected.
type setup struct {
	typ            verbs.QPType
	pd             verbs.PD // zero: the side's
	sendCQ, recvCQ *cq      // zero: of its own
	srq            verbs.SRQ
	caps           verbs.QPCaps
	signalAll      bool
	access         verbs.Access
	mtu            verbs.MTU
	psn            verbs.PSN // the first one sent
	// Reads and atomics outstanding as requester, and as responder.
	reads, serves                     uint8
	timeout, retry, rnrRetry, rnrWait uint8
	qkey                              uint32
}

func defaults(t verbs.QPType) setup {
	return setup{
		typ: t, caps: verbs.QPCaps{MaxSend: 32, MaxRecv: 32, MaxSendSGE: 2, MaxRecvSGE: 2},
		access: everything, mtu: verbs.MTU1024, psn: 0x123456, reads: 4, serves: 4,
		timeout: 14, retry: 7, rnrRetry: 7, rnrWait: 1, qkey: 0x11111,
	}
}

// qp is a queue pair of one side.
type qp struct {
	verbs.QP
	setup
	env  *env
	side *side
	peer *qp // where it is connected
}

// qp makes a queue pair, in state Reset, closed at the end of the case.
func (s *side) qp(c setup) *qp {
	s.env.Helper()
	if c.pd == nil {
		c.pd = s.pd
		if s.env.threadDomains {
			c.pd = s.parent()
		}
	}
	if c.sendCQ == nil {
		c.sendCQ = s.cq(c.caps.MaxSend)
	}
	if c.recvCQ == nil {
		c.recvCQ = s.cq(max(c.caps.MaxRecv, 16))
	}
	q, err := c.pd.CreateQP(c.config())
	require.NoError(s.env, err, "qp")
	s.env.closes("qp", q.Close)
	return &qp{QP: q, setup: c, env: s.env, side: s}
}

func (c *setup) config() verbs.QPConfig {
	v := verbs.QPConfig{Type: c.typ, SRQ: c.srq, Caps: c.caps, SignalAll: c.signalAll}
	if c.sendCQ != nil {
		v.SendCQ = c.sendCQ.CQ
	}
	if c.recvCQ != nil {
		v.RecvCQ = c.recvCQ.CQ
	}
	return v
}

const (
	initMaskRC = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccessFlags
	initMaskUD = verbs.AttrState | verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrQKey
	rtrMaskRC  = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN |
		verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	rtsMaskRC = verbs.AttrState | verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry |
		verbs.AttrMaxRdAtomic
	rtrMaskUC = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
	rtsMaskUD = verbs.AttrState | verbs.AttrSQPSN // of UC too
)

// attr gives the attributes that lead the queue pair to a state of the usual way
// towards peer.
func (q *qp) attr(to verbs.QPState, peer *qp) (*verbs.QPAttr, verbs.AttrMask) {
	a := &verbs.QPAttr{
		State: to, Port: 1, Access: q.access, QKey: q.qkey, PathMTU: q.mtu, SQPSN: q.psn, Timeout: q.timeout,
		RetryCnt: q.retry, RNRRetry: q.rnrRetry, MinRNRTimer: q.rnrWait, MaxRdAtomic: q.reads, MaxDestRdAtomic: q.serves,
	}
	if peer != nil {
		a.AV, a.DestQPN, a.RQPSN = q.side.address(peer.side), peer.QPN(), peer.psn
		a.PeerFeatures = peer.side.port.PeerFeatures
	}
	var masks map[verbs.QPState]verbs.AttrMask
	switch q.typ {
	case verbs.RC:
		masks = map[verbs.QPState]verbs.AttrMask{verbs.StateInit: initMaskRC, verbs.StateRTR: rtrMaskRC, verbs.StateRTS: rtsMaskRC}
	case verbs.UC:
		masks = map[verbs.QPState]verbs.AttrMask{verbs.StateInit: initMaskRC, verbs.StateRTR: rtrMaskUC, verbs.StateRTS: rtsMaskUD}
	case verbs.UD:
		masks = map[verbs.QPState]verbs.AttrMask{verbs.StateInit: initMaskUD, verbs.StateRTR: verbs.AttrState, verbs.StateRTS: rtsMaskUD}
	}
	mask := masks[to] | verbs.AttrState
	if q.typ != verbs.UD && to == verbs.StateRTR && a.PeerFeatures != 0 {
		mask |= verbs.AttrPeerFeatures
	}
	return a, mask
}

// to leads the queue pair to a state, from the one before it on the usual way.
func (q *qp) to(state verbs.QPState, peer *qp) {
	q.env.Helper()
	a, mask := q.attr(state, peer)
	require.NoError(q.env, q.Modify(a, mask), "to %v", state)
	require.Equal(q.env, state.String(), q.Query().State.String())
}

// ready leads a queue pair from Reset to RTS.
func (q *qp) ready(peer *qp) {
	q.env.Helper()
	q.peer = peer
	for _, s := range []verbs.QPState{verbs.StateInit, verbs.StateRTR, verbs.StateRTS} {
		q.to(s, peer)
	}
}

func (q *qp) state() verbs.QPState { return q.Query().State }

// duo is two queue pairs, one of each side, and memory for them.
type duo struct {
	*env
	a, b   *qp
	am, bm *mem
}

const duoMem = 256 << 10

// rc connects two queue pairs; change adapts their setups.
func (e *env) rc(change func(a, b *setup)) *duo {
	e.Helper()
	d := e.unconnected(verbs.RC, change)
	d.a.ready(d.b)
	d.b.ready(d.a)
	return d
}

// uc connects two queue pairs without acknowledgements.
func (e *env) uc(change func(a, b *setup)) *duo {
	e.Helper()
	c := defaults(verbs.UC)
	c.sendCQ = e.sides[0].cq(64)
	c.recvCQ = c.sendCQ
	q, err := e.sides[0].pd.CreateQP(c.config())
	e.unlessSupported(err, "the unreliable connection")
	require.NoError(e, q.Close())
	d := e.unconnected(verbs.UC, change)
	d.a.ready(d.b)
	d.b.ready(d.a)
	return d
}

// ud makes two datagram queue pairs that are ready.
func (e *env) ud(change func(a, b *setup)) *duo {
	e.Helper()
	d := e.unconnected(verbs.UD, change)
	d.a.ready(nil)
	d.b.ready(nil)
	return d
}

// unconnected makes two queue pairs in state Reset.
func (e *env) unconnected(t verbs.QPType, change func(a, b *setup)) *duo {
	e.Helper()
	a, b := defaults(t), defaults(t)
	b.psn = 0xabcdef
	if change != nil {
		change(&a, &b)
	}
	d := &duo{env: e, am: e.sides[0].mem(duoMem, everything), bm: e.sides[1].mem(duoMem, everything)}
	d.a, d.b = e.sides[0].qp(a), e.sides[1].qp(b)
	return d
}

// request is a signalled work request.
func request(id uint64, op verbs.Opcode, sg ...verbs.SGE) verbs.SendWR {
	w := verbs.SendWR{ID: id, Op: op, Flags: verbs.SendSignaled, NumSG: uint8(len(sg))}
	copy(w.SG[:], sg)
	return w
}

// at is w with the remote memory of m from off on.
func at(w verbs.SendWR, m *mem, off int) verbs.SendWR {
	w.Remote, w.RKey = m.Addr()+uint64(off), m.RKey()
	return w
}

// flagged is w with other flags.
func flagged(w verbs.SendWR, f verbs.SendFlags) verbs.SendWR {
	w.Flags = f
	return w
}

// send posts work requests, all of which must be taken.
func (q *qp) send(wrs ...verbs.SendWR) {
	q.env.Helper()
	n, st := q.PostSend(wrs)
	require.Equal(q.env, ucs.OK, st, "post send")
	require.Equal(q.env, len(wrs), n, "post send")
}

// recv posts a receive.
func (q *qp) receive(id uint64, sg ...verbs.SGE) {
	q.env.Helper()
	n, st := q.PostRecv([]verbs.RecvWR{recvWR(id, sg...)})
	require.Equal(q.env, ucs.OK, st, "post receive")
	require.Equal(q.env, 1, n, "post receive")
}

func recvWR(id uint64, sg ...verbs.SGE) verbs.RecvWR {
	w := verbs.RecvWR{ID: id, NumSG: uint8(len(sg))}
	copy(w.SG[:], sg)
	return w
}

// refuses wants the post of w alone to be refused.
func (q *qp) refuses(w verbs.SendWR, what string, args ...any) {
	q.env.Helper()
	n, st := q.PostSend([]verbs.SendWR{w})
	require.Equal(q.env, ucs.InvalidParam, st, append([]any{what}, args...)...)
	require.Zero(q.env, n, append([]any{what}, args...)...)
}

// next waits for the queue pair's next completion in c.
func (q *qp) next(c *cq) (w verbs.WC) {
	q.env.Helper()
	q.env.until("a completion", func() (ok bool) {
		w, ok = c.take(q.QPN())
		return ok
	})
	return w
}

// sent waits for the next completion of the send queue, that of request id.
func (q *qp) sent(id uint64) verbs.WC {
	q.env.Helper()
	return q.sentAs(id, verbs.WCSuccess)
}

func (q *qp) sentAs(id uint64, want ...verbs.WCStatus) verbs.WC {
	q.env.Helper()
	return q.ended(q.sendCQ, id, want)
}

// received waits for the next completion of the receive queue, that of request id.
func (q *qp) received(id uint64) verbs.WC {
	q.env.Helper()
	return q.receivedAs(id, verbs.WCSuccess)
}

func (q *qp) receivedAs(id uint64, want ...verbs.WCStatus) verbs.WC {
	q.env.Helper()
	return q.ended(q.recvCQ, id, want)
}

func (q *qp) ended(c *cq, id uint64, want []verbs.WCStatus) verbs.WC {
	q.env.Helper()
	w := q.next(c)
	if slices.Contains(want, w.Status) {
		require.Equal(q.env, id, w.ID, "order of completions")
		return w
	}
	q.env.Fatalf("request %d ended with %q, want %v of request %d", w.ID, w.Status, want, id)
	return w
}

// nothing wants no completion of the queue pair to be there.
func (q *qp) nothing(what string) {
	q.env.Helper()
	for _, c := range []*cq{q.sendCQ, q.recvCQ} {
		w, ok := c.take(q.QPN())
		require.False(q.env, ok, "%s: completion of request %d: %v", what, w.ID, w.Status)
	}
}

// fails waits until the queue pair is in state Err.
func (q *qp) fails() {
	q.env.Helper()
	q.env.until("the queue pair to fail", func() bool { return q.state() == verbs.StateErr })
}
