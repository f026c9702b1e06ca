package ucttest

import (
	"errors"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
	"github.com/goucx/goucx/uct"
)

var failureCases = []testCase{
	{"closed-iface", failureClosedIface},
	{"dead-address", failureDeadAddress},
	{"pending", failurePending},
	{"reservation", failureReservation},
	{"isolated", failureIsolated},
	{"one-side", failureOneSide},
	{"disconnect", failureDisconnect},
}

// needsFailure ends the case if a peer's death is not reported.
func (e *env) needsFailure(n *node) {
	e.Helper()
	if !n.attr.PeerFailure {
		e.notApplicable("does not report the end of a peer")
	}
}

// twoToFail is two for cases with short active messages in which a peer's end is reported.
func (e *env) twoToFail() (a, b *node) {
	e.Helper()
	a, b = e.two()
	e.needsFailure(a)
	e.needs(a, uct.OpAMShort, "AM short")
	return a, b
}

// connectToClose connects two ifaces; the case closes the second.
func (e *env) connectToClose() (l *link, r *region) {
	e.Helper()
	a, b := e.twoToFail()
	l, r = e.connect(a, b), e.anyRegion(b, a)
	l.firstMessage()
	a.mayFail = true
	return l, r
}

// failed waits for the failure report about l.
func (l *link) failed() uct.Failure {
	l.env.Helper()
	l.env.until("HandleFailure", func() bool { return len(l.from.failuresOf(l.Endpoint)) > 0 }, l.from)
	return l.from.failuresOf(l.Endpoint)[0]
}

// requireRefused checks that all operations on l are refused.
func (l *link) requireRefused(r *region) {
	l.env.Helper()
	for _, op := range l.operations(r) {
		assert.Equal(l.env, ucs.PeerFailed, settled(op.run), op.name)
	}
	if l.from.attr.Ops.Has(uct.OpPending) {
		assert.Equal(l.env, ucs.PeerFailed, l.PendingAdd(l.from.token()), "PendingAdd")
	}
}

// settled runs an operation until it returns something else than NoResource: on a slow machine the async goroutine
// may be inside of the interface for long.
func settled(run func() uct.Status) (st uct.Status) {
	for range settlePasses {
		if st = run(); st != noResource {
			break
		}
		cpu.Yield()
	}
	return st
}

// failureClosedIface: the peer closes in order. One report without a reason follows, then every
// operation returns PeerFailed.
func failureClosedIface(e *env) {
	l, r := e.connectToClose()
	require.NoError(e, l.to.close())
	f := l.failed()
	assert.NoError(e, f.Err, "the peer closed in order")
	assert.True(e, f.Acked, "the peer had received the message")
	l.requireRefused(r)
	e.settle(l.from)
	require.Len(e, l.from.failuresOf(l.Endpoint), 1, "reported more than once")
	l.requireRefused(r)
	l.Close()
	l.Close()
	e.settle(l.from)
	require.Len(e, l.from.failuresOf(l.Endpoint), 1, "reported after Close")
}

// failureDeadAddress: the address of an iface that is closed.
func failureDeadAddress(e *env) {
	a, b := e.two()
	e.needsFailure(a)
	closedAddr := b.address()
	require.NoError(e, b.close())
	a.mayFail = true
	if reachable, _ := a.iface.Reachable(closedAddr); !reachable {
		return
	}
	ep, err := a.iface.NewEndpoint(closedAddr)
	if err != nil {
		assert.NotErrorIs(e, err, ucs.ErrInProgress)
		return
	}
	e.Cleanup(ep.Close)
	l := &link{Endpoint: ep, env: e, from: a, to: b}
	ep.AMUint64(1, 1, 1)
	f := l.failed()
	assert.True(e, isSentinel(f.Err), "failure without a sentinel of package ucs: %v", f.Err)
	l.requireRefused(nil)
}

// isSentinel reports whether err wraps an error of package ucs.
func isSentinel(err error) bool {
	sentinels := []error{ucs.ErrPeerFailed, ucs.ErrUnreachable, ucs.ErrTimeout, ucs.ErrClosed, ucs.ErrNoMemory, ucs.ErrRemoteAccess}
	return slices.ContainsFunc(sentinels, func(s error) bool { return errors.Is(err, s) })
}

// failurePending: tokens remain for PendingPurge and are not passed to HandlePending.
func failurePending(e *env) {
	a, b := e.two()
	e.needsFailure(a)
	e.needs(a, uct.OpAMShort|uct.OpPending, "AM short with pending")
	f := e.fillLink(e.connect(a, b))
	f.add(5)
	a.mayFail = true
	reported := false
	a.onFailure = func(uct.Failure) { reported = true }
	a.onPending = func([]uct.Token) int {
		if reported {
			e.Errorf("tokens are offered after the failure")
		}
		return 0
	}
	require.NoError(e, b.close())
	f.failed()
	e.settle(a)
	var got []uct.Token
	f.PendingPurge(func(t uct.Token) { got = append(got, t) })
	require.Equal(e, f.queue, got)
	f.requireRefused(nil)
}

// failureReservation: on a failed endpoint CommitAM and Abort do nothing.
func failureReservation(e *env) {
	l, _ := e.connectToClose()
	e.needs(l.from, uct.OpAMBcopy, "AM bcopy")
	b, st := l.ReserveAM(1, 1, 64)
	require.Equal(e, ok, st)
	require.NoError(e, l.to.close())
	l.failed()
	clobber(b) // the transport's memory is still valid
	l.CommitAM(64)
	l.Abort()
	l.requireRefused(nil)
	e.settle(l.from)
}

// failureIsolated: other peers of the iface keep working, before and after.
func failureIsolated(e *env) {
	l, r := e.connectToClose()
	a, c := l.from, e.node()
	to, from := e.connect(a, c), e.connect(c, a)
	to.firstMessage()
	var got, back sequence
	c.onMessage = func(m message) { got.take(c, m) }
	a.onMessage = func(m message) { back.take(a, m) }
	ss := []*sender{newSender(to, 1), newSender(from, 2)}
	run := func(until uint64) {
		e.until("messages of other peers", func() bool {
			for _, s := range ss {
				for range 10 {
					if s.number == until {
						break
					}
					st := s.send(1)
					if st == noResource {
						break
					}
					require.Contains(e, []uct.Status{ok, inProgress}, st, "to another peer, after %v and %v", a.failures, c.failures)
				}
			}
			return got.next == until && back.next == until || e.Failed()
		}, a, c)
	}
	run(1000)
	require.NoError(e, l.to.close())
	run(2000)
	l.failed()
	run(3000)
	l.requireRefused(r)
	l.Close()
	run(4000)
	for _, f := range a.failures {
		assert.Contains(e, []uct.Endpoint{nil, l.Endpoint}, f.Endpoint, "another endpoint failed too")
	}
}

// failureOneSide: a peer closes its side while the local endpoint is open. This is reported once,
// by the source of its messages and after the last of them. The endpoint stays usable. If the peer
// connects again, its next close is reported like the first.
func failureOneSide(e *env) {
	a, b := e.twoToFail()
	ours := e.connect(a, b)
	for round := range 3 {
		theirs := e.connect(b, a)
		got := exchange(ours, theirs)
		require.Empty(e, a.failures, "round %d: before the end", round)
		for i := range uint64(10) {
			require.Equal(e, ok, theirs.post(func() uct.Status { return theirs.AMUint64(1, i, i) }))
		}
		a.onFailure = func(uct.Failure) { require.Len(e, a.inbox, 10, "reported before the last message") }
		theirs.Close()
		e.until("the end of the peer's side", func() bool { return len(a.failures) > 0 }, a, b)
		exchange(ours, nil)
		e.settle(a, b)
		require.Equal(e, []uct.Failure{{RxConn: got.rxConn}}, a.failures, "round %d", round)
		for _, m := range a.inbox {
			require.Equal(e, got.rxConn, m.rxConn)
		}
		a.inbox, a.failures, a.onFailure = nil, nil, nil
	}
	require.Empty(e, b.failures, "this side has not ended")
	ours.Close()
	e.until("the end of this side", func() bool { return len(b.failures) > 0 }, a, b)
	e.settle(a, b)
	require.Len(e, b.failures, 1)
	require.Empty(e, a.failures)
}

// failureDisconnect: the receiver ends a connection from a callback. Both ends fail, once. Others
// keep working, and the peer may connect again.
func failureDisconnect(e *env) {
	a, b := e.twoToFail()
	l, other := e.connect(a, b), e.connect(e.node(), b)
	exchange(other, nil)
	b.iface.Disconnect(1 << 20)
	a.mayFail = true
	var source uint32
	b.onMessage = func(m message) {
		source = m.rxConn
		b.iface.Disconnect(source)
	}
	require.Equal(e, ok, l.post(func() uct.Status { return l.AMUint64(1, 2, 3) }))
	e.until("the end, on both sides", func() bool { return len(a.failures) > 0 && len(b.failures) > 0 }, a, b)
	b.onMessage = nil
	b.iface.Disconnect(source)
	l.requireRefused(nil)
	e.settle(a, b)
	require.Len(e, a.failures, 1)
	require.Same(e, l.Endpoint, a.failures[0].Endpoint)
	require.ErrorIs(e, a.failures[0].Err, ucs.ErrPeerFailed)
	require.Len(e, b.failures, 1)
	require.Equal(e, source, b.failures[0].RxConn)
	require.ErrorIs(e, b.failures[0].Err, ucs.ErrPeerFailed)
	exchange(other, nil)
	exchange(e.connect(a, b), nil)
	require.Len(e, b.failures, 1)
}

// exchange sends a message each way if there is a link, and returns the one that came back.
func exchange(to, from *link) (got message) {
	e, a, b := to.env, to.from, to.to
	e.Helper()
	require.Equal(e, ok, to.post(func() uct.Status { return to.AMUint64(2, 7, 8) }))
	e.until("a message there", func() bool { return len(b.inbox) > 0 }, a, b)
	require.Equal(e, uint64(7), b.inbox[0].header)
	b.inbox = nil
	if from == nil {
		return got
	}
	require.Equal(e, ok, from.post(func() uct.Status { return from.AMUint64(3, 9, 10) }))
	e.until("a message back", func() bool { return len(a.inbox) > 0 }, a, b)
	got = a.inbox[0]
	a.inbox = nil
	return got
}
