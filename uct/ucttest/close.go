package ucttest

import (
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

var closeCases = []testCase{
	{"endpoint", closeEndpoint},
	{"delivers", closeDelivers},
	{"in-flight", closeInFlight},
	{"in-flight-after-peer", closeInFlightLast},
	{"reported", closeReported},
	{"reopen", closeReopen},
	{"iface", closeIface},
}

// closeEndpoint: Close is idempotent, and every operation after it returns Closed.
func closeEndpoint(e *env) {
	a, b, l := e.linked(0, "")
	r := e.anyRegion(b, a)
	l.Close()
	l.Close()
	for _, op := range l.operations(r) {
		assert.Equal(e, ucs.Closed, op.run(), op.name)
	}
	l.CommitAM(0)
	l.Abort()
	l.PendingPurge(func(uct.Token) { e.Errorf("a token in a closed endpoint") })
	if a.attr.Ops.Has(uct.OpPending) {
		assert.Equal(e, ucs.Closed, l.PendingAdd(a.token()), "PendingAdd")
	}
	l.Close()
	e.settle(a, b)
}

// closeDelivers: messages accepted before Close arrive.
func closeDelivers(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	for range 20 {
		l := e.connect(a, b)
		s := newSender(l, 1)
		var got sequence
		b.onMessage = func(m message) { got.take(b, m) }
		l.post(func() uct.Status { return s.send(1) })
		for range 30 {
			if s.send(1) == noResource {
				break
			}
		}
		require.NotZero(e, s.number)
		if a.inFlight() > 0 {
			l.flush() // otherwise closing cancels
		}
		l.Close()
		e.until("messages sent before Close", func() bool { return got.next == s.number }, a, b)
	}
}

// closeInFlight: tokens in flight complete once each, with Canceled if their operation had not
// completed.
func closeInFlight(e *env) {
	a, b := e.pair()
	l := e.connect(a, b).up()
	r := e.anyRegion(b, a)
	b.quiet = true
	for range 100 {
		for _, op := range l.operations(r) {
			op.run()
		}
	}
	if a.inFlight() == 0 {
		e.notApplicable("no operation stays in flight")
	}
	l.Close()
	e.until("the events of a closed endpoint", func() bool { return a.inFlight() == 0 }, a)
	for t, f := range a.inFlightOps {
		require.Contains(e, []uct.Status{ok, ucs.Canceled}, f.event.Status, "token %d", t)
	}
	e.settle(a, b)
}

// closeInFlightLast: an iface counts a connection as active until its tokens in flight have
// completed, even if the peer has closed its side before. An inactive iface gets no progress.
func closeInFlightLast(e *env) {
	a, b := e.twoToFail()
	for round := range 20 {
		ours, theirs := e.connect(a, b), e.connect(b, a)
		r := e.anyRegion(b, a)
		exchange(ours, theirs)
		theirs.Close()
		e.until("the end of the peer's side", func() bool { return len(a.failures) > 0 }, a, b)
		for _, op := range ours.operations(r) {
			op.run()
		}
		if a.inFlight() == 0 {
			e.notApplicable("no operation stays in flight")
		}
		ours.Close()
		e.until("the iface to be idle", func() bool { return a.iface.ActiveEndpoints() == 0 }, a, b)
		require.Zero(e, a.inFlight(), "round %d: tokens in flight of an iface that is not active", round)
		e.settle(a, b) // the last messages may be on their way to the peer
		a.inbox, b.inbox, a.failures, b.failures = nil, nil, nil, nil
	}
}

// closeReported: the receiver gets a report of a peer that closed in order, once, after its last
// message.
func closeReported(e *env) {
	a, b := e.twoToFail()
	l := e.connect(a, b)
	l.firstMessage()
	for i := range uint64(10) {
		l.post(func() uct.Status { return l.AMUint64(1, i, i) })
	}
	l.Close()
	e.until("the end of the connection", func() bool { return len(b.failures) > 0 }, a, b)
	require.Len(e, b.inbox, 10, "reported before the last message")
	e.settle(a, b)
	require.Len(e, b.failures, 1)
	require.Equal(e, uct.Failure{RxConn: b.inbox[0].rxConn}, b.failures[0])
	require.Empty(e, a.failures, "nothing came to the side that ended")
}

// closeReopen: endpoints are created and closed in turn; each new one works.
func closeReopen(e *env) {
	a, b := e.pair()
	e.needs(a, uct.OpAMShort, "AM short")
	for i := range uint64(200) {
		ep, err := a.iface.NewEndpoint(b.address())
		require.NoError(e, err)
		l := &link{Endpoint: ep, env: e, from: a, to: b}
		if i%3 > 0 { // some are never used
			require.Equal(e, ok, l.post(func() uct.Status { return l.AMUint64(1, i, i) }))
			require.Equal(e, i, l.receive().header)
		}
		ep.Close()
		progress(a, b)
	}
}

// closeIface: Close is idempotent, also with endpoints open and messages in flight.
func closeIface(e *env) {
	a, b, l := e.linked(uct.OpAMShort, "AM short")
	r := e.anyRegion(b, a)
	a.mayFail, b.mayFail = true, true
	require.Equal(e, ok, l.post(func() uct.Status { return l.AMUint64(1, 1, 1) }))
	require.NoError(e, a.close())
	require.NoError(e, a.close(), "closed twice")
	for _, op := range l.operations(r) {
		assert.Equal(e, ucs.Closed, op.run(), op.name)
	}
	l.Close()
	_, err := a.iface.NewEndpoint(b.address())
	require.Error(e, err, "an endpoint of a closed iface")
	if a != b {
		e.settle(b)
	}
}
