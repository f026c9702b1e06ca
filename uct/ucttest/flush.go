package ucttest

import (
	"sync"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var flushCases = []testCase{
	{"local", func(e *env) { flushEndpoint(e, uct.FlushLocal, uct.OpFlushLocal) }},
	{"remote", func(e *env) { flushEndpoint(e, uct.FlushRemote, uct.OpFlushRemote) }},
	{"cancel", flushCancel},
	{"iface", flushIface},
	{"several", flushSeveral},
	{"while-pending", flushPending},
	{"no-token", flushNoToken},
	{"fence-order", flushFenceOrder},
	{"fence-after-get", flushFenceAfterGet},
	{"check", flushCheck},
}

// work posts each operation repeatedly while resources allow.
func (l *link) work(r *region, rounds int) {
	for range rounds {
		for _, op := range l.operations(r) {
			assert.Contains(l.env, []uct.Status{ok, inProgress}, l.post(op.run), op.name)
		}
	}
}

// flushEndpoint: operations posted before the flush have completed when it completes.
func flushEndpoint(e *env, k uct.FlushKind, need uct.Ops) {
	a, b, l := e.linked(need, "this flush")
	r := e.anyRegion(b, a)
	b.quiet = true
	for rounds := range 4 { // 0: nothing to flush
		l.work(r, rounds*10)
		require.Equal(e, ok, l.complete(func(t uct.Token) uct.Status { return l.Flush(k, t) }))
		require.Zero(e, a.inFlight(), "operations end after the flush behind them")
	}
	e.settle(a, b)
}

// flushIface: the same for all endpoints at once.
func flushIface(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpFlushLocal, "flush")
	links := []*link{e.connect(a, b), e.connect(a, b)}
	r := e.anyRegion(b, a)
	b.quiet = true
	for rounds := range 4 {
		for _, l := range links {
			l.work(r, rounds*5)
		}
		t := a.token()
		st := links[0].post(func() uct.Status { return a.sent(t, a.iface.Flush(t)) })
		require.Equal(e, ok, links[0].end(t, st))
		require.Zero(e, a.inFlight(), "operations end after the flush behind them")
		require.Equal(e, ok, a.iface.Fence())
	}
	e.settle(a, b)
}

// flushSeveral: each of many flushes completes once.
func flushSeveral(e *env) {
	a, b, l := e.linked(uct.OpFlushLocal, "flush")
	r := e.anyRegion(b, a)
	b.quiet = true
	var ts []uct.Token
	var sts []uct.Status
	for range 10 {
		l.work(r, 2)
		t := a.token()
		ts = append(ts, t)
		sts = append(sts, l.post(func() uct.Status { return a.sent(t, l.Flush(uct.FlushLocal, t)) }))
	}
	for i := range ts {
		require.Equal(e, ok, l.end(ts[i], sts[i]))
	}
	e.settle(a, b)
}

// flushCancel cancels the endpoint: operations in flight complete, later operations are refused,
// and the iface keeps working.
func flushCancel(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpFlushCancel|uct.OpAMShort, "this flush with AM short")
	l, other := e.connect(a, b), e.connect(a, b)
	r := e.anyRegion(b, a)
	b.quiet = true
	a.mayFail = true
	l.work(r, 10)
	t := a.token()
	st := a.sent(t, l.Flush(uct.FlushCancel, t))
	require.Contains(e, []uct.Status{ok, ucs.Canceled}, l.end(t, st))
	require.Zero(e, a.inFlight(), "operations in flight after a cancel")
	e.settle(a, b)
	for _, op := range l.operations(r) {
		assert.Contains(e, []uct.Status{ucs.Canceled, ucs.PeerFailed}, l.post(op.run), op.name)
	}
	assert.LessOrEqual(e, len(a.failuresOf(l.Endpoint)), 1)
	for _, f := range a.failuresOf(l.Endpoint) {
		assert.ErrorIs(e, f.Err, ucs.ErrCanceled)
	}
	require.Equal(e, ok, other.post(func() uct.Status { return other.AMUint64(1, 1, 1) }), "another endpoint")
	e.settle(a, b)
}

// flushNoToken: token 0 requests no event, and none arrives (node reports unknown tokens).
func flushNoToken(e *env) {
	a, b, l := e.linked(uct.OpFlushLocal, "flush")
	r := e.anyRegion(b, a)
	b.quiet = true
	p := pattern(max(64, a.attr.AM.MinZcopy, a.attr.Put.MinZcopy, a.attr.Get.MinZcopy), 1)
	v := a.pieces(0, p, 1)
	type call struct {
		name string
		need uct.Ops
		run  func() uct.Status
	}
	ops := []call{{"Flush", uct.OpFlushLocal, func() uct.Status { return l.Flush(uct.FlushLocal, 0) }}}
	ops = append(ops, call{"AMZcopy", uct.OpAMZcopy, func() uct.Status { return l.AMZcopy(1, 1, nil, v, 0) }})
	if r != nil {
		ops = append(ops, []call{
			{"PutBcopy", uct.OpPutBcopy, func() uct.Status { return l.PutBcopy(p, r.base, r.key, 0) }},
			{"PutZcopy", uct.OpPutZcopy, func() uct.Status { return l.PutZcopy(v, r.base, r.key, 0) }},
			{"GetBcopy", uct.OpGetBcopy, func() uct.Status { return l.GetBcopy(make([]byte, 64), r.base, r.key, 0) }},
		}...)
	}
	for range 20 {
		for _, op := range ops {
			if a.attr.Ops.Has(op.need) {
				require.Contains(e, []uct.Status{ok, inProgress}, l.post(op.run), op.name)
			}
		}
	}
	l.flush()
	e.settle(a, b)
}

// flushPending: a flush does not cover pending tokens. It may return NoResource, but must not wait
// for them.
func flushPending(e *env) {
	f := e.fillUp()
	e.needs(f.from, uct.OpFlushLocal, "flush")
	f.add(1)
	f.from.onPending = func([]uct.Token) int { return 0 }
	t := f.from.token()
	switch st := f.from.sent(t, f.Flush(uct.FlushLocal, t)); st {
	case noResource:
	case ok, inProgress:
		require.Equal(e, ok, f.end(t, st))
	default:
		require.Equal(e, ok, st)
	}
	f.from.onPending = f.offer(1)
	f.drain()
}

// flushFenceOrder: a reader that sees the flag sees the data that was put before the fence.
func flushFenceOrder(e *env) {
	b := e.node()
	e.needs(b, uct.OpFence|uct.OpPutShort|uct.OpGetShort, "fence with put and get short")
	links := e.initiators(b, 2)
	w, rd := links[0], links[1]
	mem := e.region(b, w.from, e.kinds(b)[0], 4096, uct.MemRemote)
	rdKey := e.unpack(rd.from, mem.packed)
	rounds := uint64(e.messages() / 50)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf, last := make([]byte, min(64, rd.from.attr.Get.Short)), uint64(0)
		done := drive(func() bool {
			v, st := rd.value(mem.base+1024, rdKey)
			if st == ok && v != last {
				last = v
				if st = rd.GetShort(buf, mem.base, rdKey); st == ok && le.Uint64(buf[len(buf)-8:]) < v {
					e.Errorf("flag %d with data of round %d", v, le.Uint64(buf[len(buf)-8:]))
				}
			}
			return last == rounds || e.Failed()
		}, rd.from)
		if !done {
			e.Errorf("flag %d of %d seen", last, rounds)
		}
	})
	data := make([]byte, min(64, w.from.attr.Put.Short))
	for i := uint64(1); i <= rounds; i++ {
		for at := 0; at+8 <= len(data); at += 8 {
			le.PutUint64(data[at:], i)
		}
		e.check(w.post(func() uct.Status { return w.PutShort(data, mem.base, mem.key) }))
		e.check(w.post(w.Fence))
		e.check(w.post(func() uct.Status { return w.PutUint64(i, mem.base+1024, mem.key) }))
	}
	w.flush()
	wg.Wait()
}

func (e *env) check(st uct.Status) {
	e.Helper()
	if st != ok {
		e.Errorf("returned %v", st)
	}
}

// value reads a word if the transport returns it at once; else it returns NoResource.
func (l *link) value(addr uint64, k uct.RKey) (uint64, uct.Status) {
	t := l.from.token()
	v, st := l.GetUint64(addr, k, t)
	if l.from.sent(t, st) != inProgress {
		return v, st
	}
	f := l.from.inFlightOps[t]
	if !drive(func() bool { return f.ended }, l.from) {
		return 0, noResource
	}
	return f.event.Value, f.event.Status
}

// flushCheck: Check of a live peer succeeds.
func flushCheck(e *env) {
	_, _, l := e.linked(uct.OpCheck, "check")
	for range 3 {
		require.Equal(e, ok, l.complete(l.Check))
	}
}
