package verbstest

import (
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var srqCases = []testCase{
	{"shared", 0, srqShared},
	{"datagrams", 0, srqDatagrams},
	{"post-to-qp", 0, srqPostToQP},
	{"empty", 0, srqEmpty},
	{"full", 0, srqFull},
	{"attributes", 0, srqAttributes},
	{"limit", 0, srqLimit},
	{"limit-below", 0, srqLimitBelow},
	{"survives", 0, srqSurvives},
	{"last-wqe", 0, srqLastWQE},
	{"busy", 0, srqBusy},
	{"resize", 0, srqResize},
	{"bad-receive", 0, srqBadReceive},
}

// srq makes a shared receive queue of the second side.
func (e *env) srq(a verbs.SRQAttr) verbs.SRQ {
	e.Helper()
	q, err := e.sides[1].pd.CreateSRQ(a)
	e.unlessSupported(err, "a shared receive queue")
	e.closes("srq", q.Close)
	return q
}

// sharing gives count pairs whose second ends take from one queue.
func (e *env) sharing(count int) (verbs.SRQ, []*duo) {
	e.Helper()
	q := e.srq(verbs.SRQAttr{MaxWR: 64, MaxSGE: 2})
	var duos []*duo
	for range count {
		duos = append(duos, e.rc(func(_, b *setup) { b.srq = q }))
	}
	return q, duos
}

// give posts receives of 64 bytes with ids from first on.
func (d *duo) give(q verbs.SRQ, first uint64, count int) {
	d.Helper()
	for i := range count {
		n, st := q.PostRecv([]verbs.RecvWR{recvWR(first+uint64(i), d.bm.sge(i*64, 64))})
		require.Equal(d, ucs.OK, st)
		require.Equal(d, 1, n)
	}
}

// srqShared: receives go to the queue pairs that need one, in the order in which they came.
func srqShared(e *env) {
	q, duos := e.sharing(3)
	duos[0].give(q, 0, 30)
	for i := range uint64(30) {
		d := duos[i*7%3]
		copy(d.am.buf, pattern(20, byte(i)))
		d.a.send(request(i, verbs.OpSend, d.am.sge(0, 20)))
		d.a.sent(i)
		w := d.b.received(i)
		require.Equal(e, d.b.QPN(), w.QPN)
		require.Equal(e, pattern(20, byte(i)), duos[0].bm.buf[i*64:][:20])
	}
}

func srqDatagrams(e *env) {
	q := e.srq(verbs.SRQAttr{MaxWR: 16, MaxSGE: 1})
	d := e.ud(func(_, b *setup) { b.srq = q })
	d.give(q, 5, 2)
	ah := e.sides[0].ah(e.sides[1])
	d.a.send(datagram(1, d.b, ah, d.am.sge(0, 20)), datagram(2, d.b, ah, d.am.sge(0, 21)))
	require.EqualValues(e, 60, d.b.received(5).Len)
	require.EqualValues(e, 61, d.b.received(6).Len)
	d.a.sent(1)
	d.a.sent(2)
}

// srqPostToQP: a queue pair with a shared queue has no receives of its own.
func srqPostToQP(e *env) {
	_, duos := e.sharing(1)
	n, st := duos[0].b.PostRecv([]verbs.RecvWR{recvWR(1)})
	require.Equal(e, ucs.InvalidParam, st)
	require.Zero(e, n)
}

// srqEmpty: senders wait for a receive.
func srqEmpty(e *env) {
	q, duos := e.sharing(2)
	for i, d := range duos {
		d.a.send(request(uint64(i), verbs.OpSend, d.am.sge(0, 8)))
	}
	e.settle()
	duos[0].a.nothing("no receive")
	duos[0].give(q, 9, 1)
	duos[0].give(q, 9, 1)
	for i, d := range duos {
		d.a.sent(uint64(i))
		d.b.received(9)
	}
}

func srqFull(e *env) {
	q, duos := e.sharing(1)
	d := duos[0]
	most := q.Query().MaxWR
	list := make([]verbs.RecvWR, most+1)
	for i := range list {
		list[i] = recvWR(uint64(i), d.bm.sge(0, 8))
	}
	n, st := q.PostRecv(list)
	require.Equal(e, ucs.NoResource, st)
	require.Equal(e, most, n)
	bad := recvWR(1)
	bad.NumSG = uint8(q.Query().MaxSGE) + 1
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(1)
	n, st = q.PostRecv([]verbs.RecvWR{list[0], bad})
	require.Contains(e, []ucs.Status{ucs.InvalidParam, ucs.NoResource}, st)
	require.Equal(e, 1, n)
}

func srqAttributes(e *env) {
	s := e.sides[1]
	a := e.srq(verbs.SRQAttr{MaxWR: 10, MaxSGE: 1}).Query()
	require.GreaterOrEqual(e, a.MaxWR, 10)
	require.GreaterOrEqual(e, a.MaxSGE, 1)
	require.Zero(e, a.Limit)
	for name, bad := range map[string]verbs.SRQAttr{
		"receives": {MaxWR: s.Attr().MaxSRQWR + 1, MaxSGE: 1}, "pieces": {MaxWR: 1, MaxSGE: s.Attr().MaxSRQSGE + 1},
		"none": {MaxWR: 0, MaxSGE: 1}, "below zero": {MaxWR: 4, MaxSGE: -1},
	} {
		_, err := s.pd.CreateSRQ(bad)
		e.refused(err, name)
	}
}

// srqLimit: ten receives and a limit of seven: the fourth message tells, once.
func srqLimit(e *env) {
	q, duos := e.sharing(1)
	d := duos[0]
	d.give(q, 0, 10)
	require.Equal(e, ucs.OK, q.SetLimit(7))
	require.Equal(e, 7, q.Query().Limit)
	for i := range uint64(10) {
		d.a.send(request(i, verbs.OpSend, d.am.sge(0, 8)))
		d.a.sent(i)
		d.b.received(i)
		switch {
		case i < 3:
			require.Equal(e, 7, q.Query().Limit)
			e.sides[1].noEvent(verbs.EventSRQLimitReached)
		case i == 3:
			require.Equal(e, q, e.sides[1].event(verbs.EventSRQLimitReached).SRQ)
			require.Zero(e, q.Query().Limit)
		default:
			e.sides[1].noEvent(verbs.EventSRQLimitReached)
		}
	}
	d.give(q, 10, 5)
	require.Equal(e, ucs.OK, q.SetLimit(5))
	d.a.send(request(10, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(10)
	d.b.received(10)
	e.sides[1].event(verbs.EventSRQLimitReached)
}

// srqLimitBelow: a limit that is above what is left tells at once, or with the
// next message.
func srqLimitBelow(e *env) {
	q, duos := e.sharing(1)
	d := duos[0]
	d.give(q, 0, 3)
	require.Equal(e, ucs.InvalidParam, q.SetLimit(q.Query().MaxWR+1))
	require.Equal(e, ucs.InvalidParam, q.SetLimit(-1))
	require.Equal(e, ucs.OK, q.SetLimit(20))
	d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)))
	d.a.sent(1)
	d.b.received(0)
	e.sides[1].event(verbs.EventSRQLimitReached)
	e.sides[1].noEvent(verbs.EventSRQLimitReached)
}

// srqSurvives: receives of the shared queue are not flushed with a queue pair.
func srqSurvives(e *env) {
	q, duos := e.sharing(2)
	d := duos[0]
	d.give(q, 0, 4)
	duos[1].b.to(verbs.StateErr, nil)
	e.settle()
	duos[1].b.nothing("the receives belong to no queue pair")
	require.NoError(e, duos[1].b.Close())
	for i := range uint64(4) {
		d.a.send(request(i, verbs.OpSend, d.am.sge(0, 8)))
		d.a.sent(i)
		d.b.received(i)
	}
}

// srqLastWQE: a queue pair that fails tells when it holds no receive any more.
func srqLastWQE(e *env) {
	_, duos := e.sharing(1)
	duos[0].b.to(verbs.StateErr, nil)
	require.Equal(e, duos[0].b.QP, e.sides[1].event(verbs.EventQPLastWQEReached).QP)
}

func srqBusy(e *env) {
	q, _ := e.sharing(1)
	e.busy(q.Close(), "srq with a queue pair")
}

// srqResize: it holds what is queued, and takes as much as is said.
func srqResize(e *env) {
	q, duos := e.sharing(1)
	d := duos[0]
	if !e.sides[1].Attr().SRQResize {
		require.ErrorIs(e, q.Resize(100), ucs.ErrUnsupported)
		e.notApplicable("receive queues have their size")
	}
	d.give(q, 0, 20)
	before := q.Query()
	e.refused(q.Resize(10), "below what is queued")
	e.refused(q.Resize(e.sides[1].Attr().MaxSRQWR+1), "beyond the device")
	require.Equal(e, before, q.Query())
	require.NoError(e, q.Resize(200))
	require.GreaterOrEqual(e, q.Query().MaxWR, 200)
	d.give(q, 20, 180)
	require.NoError(e, q.Resize(200))
	for i := range uint64(200) {
		d.a.send(request(i, verbs.OpSend, d.am.sge(0, 8)))
		d.a.sent(i)
		d.b.received(i)
	}
}

// srqBadReceive: a receive that fails takes its queue pair along, not the others.
func srqBadReceive(e *env) {
	q, duos := e.sharing(2)
	bad, good := duos[0], duos[1]
	n, st := q.PostRecv([]verbs.RecvWR{recvWR(1, verbs.SGE{Addr: 1, Len: 64, LKey: 5})})
	require.Equal(e, ucs.OK, st)
	require.Equal(e, 1, n)
	good.give(q, 2, 1)
	bad.a.send(request(3, verbs.OpSend, bad.am.sge(0, 8)))
	bad.b.receivedAs(1, verbs.WCLocProtErr)
	bad.a.sentAs(3, verbs.WCRemOpErr)
	good.a.send(request(4, verbs.OpSend, good.am.sge(0, 8)))
	good.a.sent(4)
	good.b.received(2)
}
