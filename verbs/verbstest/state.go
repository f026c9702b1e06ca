package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

var stateCases = []testCase{
	{"cells", 0, stateCells},
	{"attributes", 0, stateAttributes},
	{"values", 0, stateValues},
	{"query", 0, stateQuery},
	{"psn-mask", 0, statePSNMask},
	{"again", 0, stateAgain},
	{"change-in-rts", 0, stateChangeInRTS},
	{"connect", 0, stateConnect},
}

// ways are how to bring a new queue pair into a state.
var ways = map[verbs.QPState][]verbs.QPState{
	verbs.StateReset: {},
	verbs.StateInit:  {verbs.StateInit},
	verbs.StateRTR:   {verbs.StateInit, verbs.StateRTR},
	verbs.StateRTS:   {verbs.StateInit, verbs.StateRTR, verbs.StateRTS},
	verbs.StateSQD:   {verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateSQD},
	verbs.StateErr:   {verbs.StateInit, verbs.StateErr},
}

var states = []verbs.QPState{
	verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE, verbs.StateErr,
}

// in makes a queue pair in a state, towards peer.
func (s *side) in(c setup, state verbs.QPState, peer *qp) *qp {
	s.env.Helper()
	q := s.qp(c)
	for _, st := range ways[state] {
		q.to(st, peer)
	}
	return q
}

// stateCells tries every change of state, with the attributes that the usual way
// to there has: what the transitions table allows happens, all else is refused and
// changes nothing.
func stateCells(e *env) { stateCellsOf(e, verbs.RC, verbs.UD) }

func stateCellsOf(e *env, types ...verbs.QPType) {
	for _, t := range types {
		c := defaults(t)
		c.sendCQ, c.recvCQ = e.sides[0].cq(64), e.sides[0].cq(64)
		peer := e.sides[1].qp(defaults(t))
		for from := range ways {
			for _, to := range states {
				q := e.sides[0].in(c, from, peer)
				a, mask := q.attr(to, peer)
				if to <= from && to != verbs.StateInit {
					mask = verbs.AttrState // back, or the same again
				}
				q.tries(a, mask)
				require.NoError(e, q.Close())
			}
		}
	}
}

// tries modifies the queue pair and compares with what CheckModify allows.
func (q *qp) tries(a *verbs.QPAttr, mask verbs.AttrMask) {
	q.env.Helper()
	before := q.Query()
	want, refused := verbs.CheckModify(q.typ, before.State, a, mask)
	err := q.Modify(a, mask)
	if refused != nil {
		q.env.refused(err, "%v: %v to %v with %v", q.typ, before.State, a.State, mask)
		require.Equal(q.env, before, q.Query(), "a refused change")
		return
	}
	if err != nil && before.State == verbs.StateSQD { // its queue may not be drained yet
		q.env.drive(func() bool { err = q.Modify(a, mask); return err == nil }, faultPatience)
	}
	require.NoError(q.env, err, "%v: %v to %v with %v", q.typ, before.State, a.State, mask)
	require.Equal(q.env, want.String(), q.state().String())
}

// stateAttributes: on the usual way, each attribute is taken out and each other
// put in, one at a time.
func stateAttributes(e *env) { stateAttributesOf(e, verbs.RC, verbs.UD) }

func stateAttributesOf(e *env, types ...verbs.QPType) {
	const allNames = 1<<21 - 1
	for _, t := range types {
		c := defaults(t)
		c.sendCQ, c.recvCQ = e.sides[0].cq(64), e.sides[0].cq(64)
		peer := e.sides[1].qp(defaults(t))
		for from, to := range map[verbs.QPState]verbs.QPState{
			verbs.StateReset: verbs.StateInit, verbs.StateInit: verbs.StateRTR, verbs.StateRTR: verbs.StateRTS,
		} {
			q := e.sides[0].in(c, from, peer)
			a, mask := q.attr(to, peer)
			a.CurState = from
			for bit := verbs.AttrMask(2); bit < allNames; bit <<= 1 {
				other := mask ^ bit
				if _, err := verbs.CheckModify(t, from, a, other); err == nil {
					continue // optional
				}
				q.tries(a, other)
			}
			q.tries(a, mask)
			require.NoError(e, q.Close())
		}
	}
}

// stateValues: values beyond the device are refused, and change nothing; MaxRdAtomic is
// reduced.
func stateValues(e *env) {
	s := e.sides[0]
	peer := e.sides[1].qp(defaults(verbs.RC))
	for name, c := range map[string]struct {
		from, to verbs.QPState
		change   func(*verbs.QPAttr)
	}{
		"partition key":  {verbs.StateReset, verbs.StateInit, func(a *verbs.QPAttr) { a.PKeyIndex = uint16(s.port.PKeys) }},
		"port 0":         {verbs.StateReset, verbs.StateInit, func(a *verbs.QPAttr) { a.Port = 0 }},
		"no such port":   {verbs.StateReset, verbs.StateInit, func(a *verbs.QPAttr) { a.Port = uint8(s.Attr().Ports + 1) }},
		"no mtu":         {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.PathMTU = 0 }},
		"mtu 7":          {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.PathMTU = 7 }},
		"gid index":      {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.AV.SGIDIndex = s.port.GIDs }},
		"no gid":         {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.AV.DGID = verbs.GID{} }},
		"way's port 0":   {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.AV.Port = 0 }},
		"way's port":     {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.AV.Port = uint8(s.Attr().Ports + 1) }},
		"flow label":     {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.AV.FlowLabel = 1 << 20 }},
		"receiver wait":  {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.MinRNRTimer = 32 }},
		"served":         {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.MaxDestRdAtomic = tooMany(s.Attr().MaxQPRdAtomic) }},
		"number":         {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.DestQPN = 1 << 24 }},
		"time-out":       {verbs.StateRTR, verbs.StateRTS, func(a *verbs.QPAttr) { a.Timeout = 32 }},
		"retries":        {verbs.StateRTR, verbs.StateRTS, func(a *verbs.QPAttr) { a.RetryCnt = 8 }},
		"rnr retries":    {verbs.StateRTR, verbs.StateRTS, func(a *verbs.QPAttr) { a.RNRRetry = 8 }},
		"another state":  {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.State = 9 }},
		"beyond the mtu": {verbs.StateInit, verbs.StateRTR, func(a *verbs.QPAttr) { a.PathMTU = s.port.PathMTU() + 1 }},
	} {
		q := s.in(defaults(verbs.RC), c.from, peer)
		before := q.Query()
		a, mask := q.attr(c.to, peer)
		c.change(a)
		e.refused(q.Modify(a, mask), name)
		require.Equal(e, before, q.Query(), name)
	}

	// More READs than the device has outstanding are reduced, not refused: fewer of them
	// are no error.
	q := s.in(defaults(verbs.RC), verbs.StateRTR, peer)
	a, mask := q.attr(verbs.StateRTS, peer)
	a.MaxRdAtomic = 255
	require.NoError(e, q.Modify(a, mask))
	require.Equal(e, uint8(min(s.Attr().MaxQPInitRdAtomic, 255)), q.Query().MaxRdAtomic)
	require.Equal(e, uint8(255), a.MaxRdAtomic, "the caller's attributes")
}

// tooMany is one more than n; 255 where no attribute can hold that.
func tooMany(n int) uint8 { return uint8(min(n+1, 255)) }

// stateQuery: Query returns what was set.
func stateQuery(e *env) {
	d := e.rc(nil)
	a := d.a.Query()
	want, _ := d.a.attr(verbs.StateRTS, d.b)
	require.Equal(e, verbs.StateRTS.String(), a.State.String())
	require.Equal(e, [3]verbs.PSN{d.a.psn, d.b.psn, verbs.PSN(d.b.QPN())}, [3]verbs.PSN{a.SQPSN, a.RQPSN, verbs.PSN(a.DestQPN)})
	require.Equal(e, want.AV.DGID, a.AV.DGID)
	require.Equal(e, want.AV.DLID, a.AV.DLID)
	require.Equal(e, want.Access, a.Access)
	require.Equal(e, want.PathMTU, a.PathMTU)
	require.Equal(e,
		[]uint8{want.Port, want.Timeout, want.RetryCnt, want.RNRRetry, want.MinRNRTimer, want.MaxRdAtomic, want.MaxDestRdAtomic},
		[]uint8{a.Port, a.Timeout, a.RetryCnt, a.RNRRetry, a.MinRNRTimer, a.MaxRdAtomic, a.MaxDestRdAtomic})
	u := e.ud(nil)
	require.Equal(e, u.a.qkey, u.a.Query().QKey)
}

// statePSNMask: sequence numbers beyond 24 bits are cut.
func statePSNMask(e *env) {
	d := e.unconnected(verbs.RC, func(a, b *setup) { a.psn, b.psn = 0x5a00_0007, 0xff00_0009 })
	d.a.ready(d.b)
	d.b.ready(d.a)
	require.Equal(e, [2]verbs.PSN{7, 9}, [2]verbs.PSN{d.a.Query().SQPSN, d.a.Query().RQPSN})
	d.a.send(request(1, verbs.OpWrite))
	d.a.sent(1)
}

// stateAgain: a queue pair that failed is as new after Reset.
func stateAgain(e *env) {
	d := e.rc(nil)
	for i := range 3 {
		d.b.receive(1, d.bm.sge(0, 100))
		d.a.send(request(2, verbs.OpSend, d.am.sge(0, 100)))
		d.a.sent(2)
		d.b.received(1)
		for _, q := range []*qp{d.a, d.b} {
			if i == 1 {
				q.to(verbs.StateErr, nil)
			}
			q.to(verbs.StateReset, nil)
		}
		d.a.ready(d.b)
		d.b.ready(d.a)
	}
}

// stateChangeInRTS: rights can be changed while it works.
func stateChangeInRTS(e *env) {
	d := e.rc(nil)
	set := func(access verbs.Access) {
		require.NoError(e, d.b.Modify(&verbs.QPAttr{Access: access}, verbs.AttrAccessFlags))
		require.Equal(e, access, d.b.Query().Access)
	}
	w := at(request(1, verbs.OpWrite, d.am.sge(0, 8)), d.bm, 0)
	d.a.send(w)
	d.a.sent(1)
	set(verbs.RemoteRead)
	d.a.send(at(request(2, verbs.OpRead, d.am.sge(0, 8)), d.bm, 0))
	d.a.sent(2)
	set(verbs.RemoteRead | verbs.RemoteWrite)
	d.a.send(w)
	d.a.sent(1)
	set(0)
	d.a.send(w)
	d.a.sentAs(1, verbs.WCRemAccessErr, verbs.WCRemInvReqErr)
}

// stateConnect: ConnectRC and StartUD take queue pairs from Reset and from Init to RTS.
// The attributes of Init stay, a refused transition leaves the state before it, and a
// connected queue pair is not connected again.
func stateConnect(e *env) {
	d := e.unconnected(verbs.RC, nil)
	d.a.to(verbs.StateInit, nil)
	for q, peer := range map[*qp]*qp{d.a: d.b, d.b: d.a} {
		q.peer = peer
		local, _ := q.attr(verbs.StateInit, nil)
		remote := verbs.RemoteQP{
			AV: q.side.address(peer.side), QPN: peer.QPN(), PSN: peer.psn, MTU: q.mtu, MaxRdAtomic: q.serves, PeerFeatures: peer.side.port.PeerFeatures,
		}
		bad := remote
		bad.MTU = 7
		e.refused(verbs.ConnectRC(q, bad, *local), "MTU 7")
		require.Equal(e, verbs.StateInit.String(), q.state().String())
		require.NoError(e, verbs.ConnectRC(q, remote, *local))
		want, _ := q.attr(verbs.StateRTS, peer)
		got := q.Query()
		require.Equal(e, []uint8{want.Timeout, want.RetryCnt, want.RNRRetry, want.MinRNRTimer, want.MaxRdAtomic, want.MaxDestRdAtomic},
			[]uint8{got.Timeout, got.RetryCnt, got.RNRRetry, got.MinRNRTimer, got.MaxRdAtomic, got.MaxDestRdAtomic})
		require.Equal(e, [4]uint32{uint32(peer.QPN()), uint32(peer.psn), uint32(q.psn), uint32(want.Access)},
			[4]uint32{uint32(got.DestQPN), uint32(got.RQPSN), uint32(got.SQPSN), uint32(got.Access)})
		e.refused(verbs.ConnectRC(q, remote, *local), "in RTS")
	}
	d.a.send(request(1, verbs.OpWrite))
	d.a.sent(1)

	u := e.sides[0].qp(defaults(verbs.UD))
	local, _ := u.attr(verbs.StateInit, nil)
	e.refused(verbs.StartUD(u, verbs.QPAttr{QKey: local.QKey}), "port 0")
	require.Equal(e, verbs.StateReset.String(), u.state().String())
	require.NoError(e, verbs.StartUD(u, *local))
	require.Equal(e, [2]uint32{uint32(verbs.StateRTS), u.qkey}, [2]uint32{uint32(u.state()), u.Query().QKey})
}
