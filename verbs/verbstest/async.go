package verbstest

import (
	"context"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

var asyncCases = []testCase{
	{"communication-established", 0, asyncCommEst},
	{"drained", 0, asyncDrained},
	{"not-asked", 0, asyncNotAsked},
	{"access", 0, asyncAccess},
	{"descriptor", 0, asyncDescriptor},
	{"wait", 0, asyncWait},
	{"close-waits", Threads, asyncCloseWaits},
}

// event waits for an event of a type and acknowledges it, and all before it.
func (s *side) event(t verbs.EventType) (v verbs.AsyncEvent) {
	s.env.Helper()
	s.env.until("event: "+t.String(), func() bool {
		for {
			var ok bool
			if v, ok = s.TryAsync(); !ok {
				return false
			}
			s.Ack(v)
			if v.Type == t {
				return true
			}
		}
	})
	return v
}

// noEvent wants no event of these types, and acknowledges others.
func (s *side) noEvent(types ...verbs.EventType) {
	s.env.Helper()
	s.env.settle()
	for v, ok := s.TryAsync(); ok; v, ok = s.TryAsync() {
		s.Ack(v)
		require.False(s.env, slices.Contains(types, v.Type), "event: %v", v.Type)
	}
}

// asyncCommEst: the first packet in RTR tells that the other end is there.
func asyncCommEst(e *env) {
	if e.fixture.Traits.NoCommEst {
		e.notApplicable("the first packet is not told")
	}
	d := e.unconnected(verbs.RC, nil)
	d.b.to(verbs.StateInit, nil)
	d.b.to(verbs.StateRTR, d.a)
	d.b.receive(1, d.bm.sge(0, 8))
	d.b.receive(2, d.bm.sge(0, 8))
	d.a.ready(d.b)
	e.sides[1].noEvent(verbs.EventCommEst)
	d.a.send(request(3, verbs.OpSend, d.am.sge(0, 8)), request(4, verbs.OpSend, d.am.sge(0, 8)))
	require.Equal(e, d.b.QP, e.sides[1].event(verbs.EventCommEst).QP)
	d.a.sent(3)
	d.a.sent(4)
	d.b.received(1)
	d.b.received(2)
	e.sides[1].noEvent(verbs.EventCommEst)
}

// asyncDrained: after RTS to SQD, when all that was begun has ended; what was not
// begun waits for RTS.
func asyncDrained(e *env) {
	d := e.rc(nil)
	d.a.send(at(request(1, verbs.OpRead, d.am.sge(0, 5000)), d.bm, 0))
	a := &verbs.QPAttr{State: verbs.StateSQD, EnSQDAsyncNotify: true}
	require.NoError(e, d.a.Modify(a, verbs.AttrState|verbs.AttrEnSQDAsyncNotify))
	require.Equal(e, d.a.QP, e.sides[0].event(verbs.EventSQDrained).QP)
	e.settle()
	if len(d.a.sendCQ.done) == 0 {
		require.NoError(e, d.a.Modify(&verbs.QPAttr{State: verbs.StateRTS}, verbs.AttrState))
	}
	d.a.sent(1)
}

func asyncNotAsked(e *env) {
	d := e.rc(nil)
	d.a.to(verbs.StateSQD, nil)
	e.sides[0].noEvent(verbs.EventSQDrained)
}

// asyncAccess: the device that refuses a request raises an event.
func asyncAccess(e *env) {
	if e.fixture.Traits.NoAccessEvents {
		e.notApplicable("refused requests raise no event")
	}
	d := e.rc(nil)
	d.a.send(d.badWrite(1))
	d.a.sentAs(1, verbs.WCRemAccessErr)
	require.Equal(e, d.b.QP, e.sides[1].event(verbs.EventQPAccessErr).QP)
}

// asyncDescriptor: it is readable exactly while there is something.
func asyncDescriptor(e *env) {
	s := e.sides[0]
	d := e.rc(nil)
	for v, ok := s.TryAsync(); ok; v, ok = s.TryAsync() {
		s.Ack(v)
	}
	require.False(e, readable(s.AsyncFD()))
	a := &verbs.QPAttr{State: verbs.StateSQD, EnSQDAsyncNotify: true}
	require.NoError(e, d.a.Modify(a, verbs.AttrState|verbs.AttrEnSQDAsyncNotify))
	e.until("the descriptor", func() bool { return readable(s.AsyncFD()) })
	s.event(verbs.EventSQDrained)
	require.False(e, readable(s.AsyncFD()))
}

// asyncWait: Async returns the next event, and ends with its context.
func asyncWait(e *env) {
	s := e.sides[0]
	d := e.rc(nil)
	a := &verbs.QPAttr{State: verbs.StateSQD, EnSQDAsyncNotify: true}
	require.NoError(e, d.a.Modify(a, verbs.AttrState|verbs.AttrEnSQDAsyncNotify))
	e.until("the descriptor", func() bool { return readable(s.AsyncFD()) })
	v, err := s.Async(context.Background())
	require.NoError(e, err)
	s.Ack(v)
	for v, ok := s.TryAsync(); ok; v, ok = s.TryAsync() {
		s.Ack(v)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = s.Async(ctx)
	require.ErrorIs(e, err, context.Canceled)
}

// asyncCloseWaits: closing a queue pair waits until its events were acknowledged.
func asyncCloseWaits(e *env) {
	s := e.sides[0]
	d := e.rc(nil)
	a := &verbs.QPAttr{State: verbs.StateSQD, EnSQDAsyncNotify: true}
	require.NoError(e, d.a.Modify(a, verbs.AttrState|verbs.AttrEnSQDAsyncNotify))
	var v verbs.AsyncEvent
	e.until("the event", func() (ok bool) {
		v, ok = s.TryAsync()
		return ok && v.Type == verbs.EventSQDrained
	})
	closed := make(chan error, 1)
	go func() { closed <- d.a.Close() }()
	e.settle()
	select {
	case <-closed:
		require.FailNow(e, "closed before the event was acknowledged")
	default:
	}
	s.Ack(v)
	var err error
	e.until("the close", func() bool {
		select {
		case err = <-closed:
			return true
		default:
			return false
		}
	})
	require.NoError(e, err)
}
