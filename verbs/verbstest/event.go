package verbstest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

var eventCases = []testCase{
	{"arm", 0, eventArm},
	{"one-shot", 0, eventOneShot},
	{"armed-late", 0, eventArmedLate},
	{"solicited", 0, eventSolicited},
	{"solicited-error", 0, eventSolicitedError},
	{"unarmed", 0, eventUnarmed},
	{"no-channel", 0, eventNoChannel},
	{"many-queues", 0, eventManyQueues},
	{"moderation-count", 0, eventModerationCount},
	{"moderation-period", 0, eventModerationPeriod},
	{"moderation-limits", 0, eventModerationLimits},
	{"wait", 0, eventWait},
	{"wait-asleep", Background | Threads, eventWaitAsleep},
}

// listener is a channel with the receive queue of a pair's second end on it.
type listener struct {
	*duo
	verbs.CompChannel
	cq *cq
}

// cookie names the queue in events.
const cookie = 0xc00c1e

func (e *env) listen() *listener {
	e.Helper()
	s := e.sides[1]
	l := &listener{CompChannel: s.channel()}
	l.cq = s.cqOf(verbs.CQConfig{Depth: 64, Channel: l.CompChannel, Cookie: cookie})
	l.cq.paused = true // cases poll it themselves
	l.duo = e.rc(func(_, b *setup) { b.recvCQ = l.cq })
	for i := range uint64(16) {
		l.b.receive(i, l.bm.sge(0, 64))
	}
	return l
}

func (s *side) channel() verbs.CompChannel {
	s.env.Helper()
	ch, err := s.CreateCompChannel()
	s.env.unlessSupported(err, "a completion channel")
	s.env.closes("channel", ch.Close)
	return ch
}

// message sends one and waits until it was acknowledged.
func (l *listener) message(flags verbs.SendFlags) {
	l.Helper()
	l.a.send(flagged(request(1, verbs.OpSend, l.am.sge(0, 8)), flags|verbs.SendSignaled))
	l.a.sent(1)
}

// fires wants an event, and only one.
func (l *listener) fires(what string) {
	l.Helper()
	l.until(what, func() bool { return readable(l.FD()) })
	c, ok := l.TryEvent()
	require.True(l, ok, what)
	require.EqualValues(l, cookie, c, what)
	l.silent(what + ", again")
}

func (l *listener) silent(what string) {
	l.Helper()
	l.settle()
	require.False(l, readable(l.FD()), "readable: %s", what)
	_, ok := l.TryEvent()
	require.False(l, ok, "an event: %s", what)
}

func (l *listener) arm(solicitedOnly bool) {
	l.Helper()
	require.Equal(l, ucs.OK, l.cq.Arm(solicitedOnly))
}

func readable(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n == 1
}

// eventArm: after each Arm the next completion raises an event, with the queue's cookie.
func eventArm(e *env) {
	l := e.listen()
	for i := range 10 {
		l.arm(false)
		l.silent("nothing came")
		l.message(0)
		l.fires("a message")
		require.Equal(e, 1, l.cq.poll(), "round %d", i)
	}
}

// eventOneShot: one Arm, one event, however many completions come.
func eventOneShot(e *env) {
	l := e.listen()
	l.arm(false)
	l.message(0)
	l.message(0)
	l.fires("two messages")
	l.message(0)
	l.silent("not armed again")
}

// eventArmedLate: what is in the queue already gives no event.
func eventArmedLate(e *env) {
	l := e.listen()
	l.message(0)
	e.settle()
	l.arm(false)
	l.silent("it was there before")
	l.message(0)
	l.fires("another")
}

// eventSolicited: only solicited messages count.
func eventSolicited(e *env) {
	l := e.listen()
	l.arm(true)
	l.message(0)
	l.silent("not solicited")
	l.message(verbs.SendSolicited)
	l.fires("solicited")
	l.arm(true)
	l.arm(false) // asks for more
	l.message(0)
	l.fires("any")
}

// eventSolicitedError: errors always count.
func eventSolicitedError(e *env) {
	l := e.listen()
	l.arm(true)
	l.b.to(verbs.StateErr, nil)
	l.fires("flushed receives")
}

func eventUnarmed(e *env) {
	l := e.listen()
	l.message(verbs.SendSolicited)
	l.silent("never armed")
}

func eventNoChannel(e *env) {
	require.Equal(e, ucs.InvalidParam, e.sides[0].cq(4).Arm(false))
}

// eventManyQueues: the events of several queues come through one channel.
func eventManyQueues(e *env) {
	s := e.sides[1]
	ch := s.channel()
	var duos []*duo
	for i := range uint64(4) {
		c := s.cqOf(verbs.CQConfig{Depth: 16, Channel: ch, Cookie: i + 1})
		d := e.rc(func(_, b *setup) { b.recvCQ = c })
		d.b.receive(1, d.bm.sge(0, 8))
		require.Equal(e, ucs.OK, c.Arm(false))
		duos = append(duos, d)
	}
	for _, d := range duos {
		d.a.send(request(1, verbs.OpSend, d.am.sge(0, 8)))
	}
	told := map[uint64]bool{}
	e.until("an event of each queue", func() bool {
		if c, ok := ch.TryEvent(); ok {
			require.False(e, told[c], "queue %d twice", c)
			told[c] = true
		}
		return len(told) == len(duos)
	})
	for _, d := range duos {
		d.a.sent(1)
		d.b.received(1)
	}
}

// eventWait: Event returns the next event, and ends with its context.
func eventWait(e *env) {
	l := e.listen()
	l.arm(false)
	l.message(0)
	e.until("the event", func() bool { return readable(l.FD()) })
	c, err := l.Event(context.Background())
	require.NoError(e, err)
	require.EqualValues(e, cookie, c)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = l.Event(ctx)
	require.ErrorIs(e, err, context.Canceled)
}

// eventWaitAsleep: a goroutine that waits for an event is woken by a message,
// without a poll of the device.
func eventWaitAsleep(e *env) {
	l := e.listen()
	ctx, cancel := context.WithTimeout(context.Background(), e.patience)
	defer cancel()
	for range 10 {
		l.arm(false)
		woken := make(chan error, 1)
		go func() {
			_, err := l.Event(ctx)
			woken <- err
		}()
		cqs := e.cqs
		e.cqs = []*cq{l.a.sendCQ}
		l.a.send(request(1, verbs.OpSend, l.am.sge(0, 8)))
		var err error
		e.until("the sleeper", func() bool {
			select {
			case err = <-woken:
				return true
			default:
				return false
			}
		})
		require.NoError(e, err)
		l.a.sent(1)
		e.cqs = cqs
		require.Equal(e, 1, l.cq.poll())
	}
}

// moderated is a listener whose events are delayed.
func (e *env) moderated(count int, period time.Duration) *listener {
	e.Helper()
	l := e.listen()
	e.unlessSupported(verbs.Moderate(l.cq.CQ, count, period), "moderation")
	return l
}

// eventModerationCount: the last of several completions raises the event, and without moderation
// each does again.
func eventModerationCount(e *env) {
	l := e.moderated(4, 0)
	for range 2 {
		require.Equal(e, ucs.OK, l.cq.Arm(false))
		for range 3 {
			l.message(0)
			l.silent("fewer completions than the count")
		}
		l.message(0)
		l.fires("the count")
		l.message(0)
		l.silent("not armed")
	}
	require.NoError(e, verbs.Moderate(l.cq.CQ, 1, 0))
	require.Equal(e, ucs.OK, l.cq.Arm(false))
	l.message(0)
	l.fires("no moderation")
}

// eventModerationPeriod: fewer completions raise the event at the end of the period.
func eventModerationPeriod(e *env) {
	const period = 20 * time.Millisecond
	l := e.moderated(1000, period)
	for range 3 {
		require.Equal(e, ucs.OK, l.cq.Arm(false))
		from := e.now()
		l.message(0)
		l.until("the event", func() bool { return readable(l.FD()) })
		require.GreaterOrEqual(e, e.now().Sub(from), period)
		l.fires("the period")
	}
}

func eventModerationLimits(e *env) {
	l := e.moderated(1, 0)
	a := e.sides[1].Attr()
	require.Positive(e, a.MaxCQModCount)
	require.Positive(e, a.MaxCQModPeriod)
	e.refused(verbs.Moderate(l.cq.CQ, a.MaxCQModCount+1, 0), "count")
	e.refused(verbs.Moderate(l.cq.CQ, 1, a.MaxCQModPeriod+time.Microsecond), "period")
	e.refused(verbs.Moderate(l.cq.CQ, -1, 0), "negative count")
	e.refused(verbs.Moderate(l.cq.CQ, 1, -time.Second), "negative period")
	require.Equal(e, ucs.OK, l.cq.Arm(false))
	l.message(0)
	l.fires("what was before")
}
