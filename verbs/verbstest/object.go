package verbstest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var objectCases = []testCase{
	{"domains", 0, objectDomains},
	{"domain-busy", 0, objectDomainBusy},
	{"cq", 0, objectCQ},
	{"cq-busy", 0, objectCQBusy},
	{"channel-busy", 0, objectChannelBusy},
	{"thread-domain-busy", 0, objectThreadDomainBusy},
	{"qp-caps", 0, objectQPCaps},
	{"qp-limits", 0, objectQPLimits},
	{"qp-types", 0, objectQPTypes},
	{"qp-numbers", 0, objectQPNumbers},
	{"ah", 0, objectAH},
	{"close-twice", 0, objectCloseTwice},
}

func objectDomains(e *env) {
	for range 100 {
		e.sides[0].domain()
	}
}

// objectDomainBusy: nothing that was made in a domain may outlive it.
func objectDomainBusy(e *env) {
	s := e.sides[0]
	c := s.cq(4)
	for name, f := range map[string]func(pd verbs.PD) (interface{ Close() error }, error){
		"mr": func(pd verbs.PD) (interface{ Close() error }, error) {
			return pd.Register(make([]byte, 64), verbs.MRConfig{Access: verbs.LocalWrite})
		},
		"qp": func(pd verbs.PD) (interface{ Close() error }, error) {
			return pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c.CQ, RecvCQ: c.CQ, Caps: verbs.QPCaps{MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		},
		"srq": func(pd verbs.PD) (interface{ Close() error }, error) {
			return pd.CreateSRQ(verbs.SRQAttr{MaxWR: 4, MaxSGE: 1})
		},
		"ah": func(pd verbs.PD) (interface{ Close() error }, error) { return pd.CreateAH(s.address(s)) },
	} {
		pd, err := s.AllocPD()
		require.NoError(e, err)
		child, err := f(pd)
		require.NoError(e, err, name)
		e.busy(pd.Close(), "domain with "+name)
		require.NoError(e, child.Close(), name)
		require.NoError(e, pd.Close(), "domain after its "+name)
	}
}

// objectCQ: a depth that is none, or beyond the device, is refused.
func objectCQ(e *env) {
	s := e.sides[0]
	for _, depth := range []int{0, -1, s.Attr().MaxCQE + 1} {
		_, err := s.CreateCQ(verbs.CQConfig{Depth: depth})
		e.refused(err, "depth %d", depth)
	}
	for _, depth := range []int{1, 3, 1000} {
		s.cq(depth)
	}
}

func objectCQBusy(e *env) {
	d := e.rc(nil)
	e.busy(d.a.sendCQ.Close(), "cq of sends")
	e.busy(d.a.recvCQ.Close(), "cq of receives")
}

func objectChannelBusy(e *env) {
	s := e.sides[0]
	ch, err := s.CreateCompChannel()
	require.NoError(e, err)
	c, err := s.CreateCQ(verbs.CQConfig{Depth: 4, Channel: ch})
	require.NoError(e, err)
	e.busy(ch.Close(), "channel")
	require.NoError(e, c.Close())
	require.NoError(e, ch.Close())
}

// objectThreadDomainBusy: thread domain, parent domain and what is in it go in
// their order.
func objectThreadDomainBusy(e *env) {
	s := e.sides[0]
	td, err := s.AllocTD(verbs.TDConfig{})
	e.unlessSupported(err, "thread domain")
	parent, err := s.pd.Parent(td)
	e.unlessSupported(err, "parent domain")
	e.busy(td.Close(), "thread domain")
	c := s.cq(4)
	q, err := parent.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c.CQ, RecvCQ: c.CQ, Caps: verbs.QPCaps{MaxSend: 1, MaxRecv: 1}})
	require.NoError(e, err)
	e.busy(parent.Close(), "parent domain")
	require.NoError(e, q.Close())
	require.NoError(e, parent.Close())
	require.NoError(e, td.Close())
}

// objectQPCaps: a queue pair has at least the sizes that were asked for, and says
// so.
func objectQPCaps(e *env) {
	s := e.sides[0]
	for _, caps := range []verbs.QPCaps{
		{MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1},
		{MaxSend: 5, MaxRecv: 9, MaxSendSGE: 2, MaxRecvSGE: 1, MaxInline: min(17, s.Attr().MaxInline)},
		{MaxSend: 100, MaxRecv: 3, MaxSendSGE: s.Attr().MaxSGE, MaxRecvSGE: s.Attr().MaxSGE, MaxInline: s.Attr().MaxInline},
	} {
		for _, t := range []verbs.QPType{verbs.RC, verbs.UD} {
			c := defaults(t)
			c.caps = caps
			got := s.qp(c).Query().Caps
			assert.GreaterOrEqual(e, got.MaxSend, caps.MaxSend)
			assert.GreaterOrEqual(e, got.MaxRecv, caps.MaxRecv)
			assert.GreaterOrEqual(e, got.MaxSendSGE, caps.MaxSendSGE)
			assert.GreaterOrEqual(e, got.MaxRecvSGE, caps.MaxRecvSGE)
			assert.GreaterOrEqual(e, got.MaxInline, caps.MaxInline)
		}
	}
}

// objectQPLimits: one more than the device has is refused.
func objectQPLimits(e *env) {
	s := e.sides[0]
	c := s.cq(16)
	a := s.Attr()
	for name, caps := range map[string]verbs.QPCaps{
		"sends":        {MaxSend: a.MaxQPWR + 1},
		"receives":     {MaxRecv: a.MaxQPWR + 1},
		"send pieces":  {MaxSend: 1, MaxSendSGE: a.MaxSGE + 1},
		"recv pieces":  {MaxRecv: 1, MaxRecvSGE: a.MaxSGE + 1},
		"inline":       {MaxSend: 1, MaxInline: a.MaxInline + 1},
		"below zero":   {MaxSend: -1},
		"below zero 2": {MaxSend: 1, MaxRecvSGE: -1},
	} {
		_, err := s.pd.CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c.CQ, RecvCQ: c.CQ, Caps: caps})
		e.refused(err, name)
	}
}

// objectQPTypes: what is no type, lacks a queue or belongs to another device is
// refused.
func objectQPTypes(e *env) {
	s := e.sides[0]
	c, foreign := s.cq(16), e.sides[1].cq(16)
	caps := verbs.QPCaps{MaxSend: 1, MaxRecv: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	for name, f := range map[string]verbs.QPConfig{
		"no send cq":   {Type: verbs.RC, RecvCQ: c.CQ, Caps: caps},
		"no recv cq":   {Type: verbs.RC, SendCQ: c.CQ, Caps: caps},
		"no type":      {SendCQ: c.CQ, RecvCQ: c.CQ, Caps: caps},
		"unknown type": {Type: 7, SendCQ: c.CQ, RecvCQ: c.CQ, Caps: caps},
		"foreign cq":   {Type: verbs.RC, SendCQ: foreign.CQ, RecvCQ: c.CQ, Caps: caps},
	} {
		_, err := s.pd.CreateQP(f)
		require.Error(e, err, name)
		if name != "no type" && name != "unknown type" {
			e.refused(err, name)
		}
	}
	q, err := s.pd.CreateQP(verbs.QPConfig{Type: verbs.UC, SendCQ: c.CQ, RecvCQ: c.CQ, Caps: caps})
	if err != nil {
		require.ErrorIs(e, err, ucs.ErrUnsupported)
		return
	}
	require.NoError(e, q.Close())
}

// objectQPNumbers: numbers of 24 bits, each once, not the reserved ones, and not
// soon again.
func objectQPNumbers(e *env) {
	s := e.sides[0]
	c := defaults(verbs.RC)
	c.sendCQ = s.cq(16)
	c.recvCQ = c.sendCQ
	seen := map[verbs.QPN]bool{}
	for i := range 64 {
		q, err := s.pd.CreateQP(c.config())
		require.NoError(e, err)
		n := q.QPN()
		require.False(e, seen[n], "number %#x again", n)
		require.Greater(e, n, verbs.QPN(1), "reserved")
		require.Less(e, n, verbs.MulticastQPN)
		seen[n] = true
		if i%2 == 0 {
			require.NoError(e, q.Close())
			continue
		}
		e.closes("qp", q.Close)
	}
}

// objectAH: an address is checked, and a handle may go at any time.
func objectAH(e *env) {
	s := e.sides[0]
	s.ah(e.sides[1])
	s.ah(s)
	for name, change := range map[string]func(*verbs.AHAttr){
		"no gid":    func(a *verbs.AHAttr) { a.DGID = verbs.GID{} },
		"port 0":    func(a *verbs.AHAttr) { a.Port = 0 },
		"no port":   func(a *verbs.AHAttr) { a.Port = uint8(s.Attr().Ports + 1) },
		"gid index": func(a *verbs.AHAttr) { a.SGIDIndex = s.port.GIDs },
		"flow":      func(a *verbs.AHAttr) { a.FlowLabel = 1 << 20 },
	} {
		a := s.address(e.sides[1])
		change(&a)
		_, err := s.pd.CreateAH(a)
		e.refused(err, name)
	}
	d := e.ud(nil)
	ah, err := s.pd.CreateAH(s.address(e.sides[1]))
	require.NoError(e, err)
	d.b.receive(1, d.bm.sge(0, 100))
	d.a.send(datagram(1, d.b, ah, d.am.sge(0, 8)))
	d.a.sent(1)
	d.b.received(1)

	d.b.receive(2, d.bm.sge(0, 100))
	d.a.to(verbs.StateSQD, nil) // nothing leaves the queue
	d.a.send(datagram(2, d.b, ah, d.am.sge(0, 8)))
	require.NoError(e, ah.Close(), "before the request is carried out")
	require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	d.a.sent(2)
	d.b.received(2)
}

func objectCloseTwice(e *env) {
	d := e.rc(nil)
	require.NoError(e, d.a.Close())
	require.NoError(e, d.a.Close())
	require.NoError(e, d.am.Close())
	require.NoError(e, d.am.Close())
	n, st := d.a.PostSend([]verbs.SendWR{request(1, verbs.OpWrite)})
	require.Zero(e, n)
	require.NotEqual(e, ucs.OK, st, "post to a closed queue pair")
	n, st = d.a.PostRecv([]verbs.RecvWR{recvWR(1)})
	require.Zero(e, n)
	require.NotEqual(e, ucs.OK, st, "post to a closed queue pair")
}
