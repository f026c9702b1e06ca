package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestNobodyPolls: reads end while the side that is read from does nothing, also
// after both devices have been asleep.
func TestNobodyPolls(t *testing.T) {
	for _, mode := range []EngineMode{EngineBackground, EngineThread} {
		for _, c := range []Config{{Link: LinkInproc, Engine: mode}, {Link: LinkUDP, Addr: localhost, Engine: mode}} {
			t.Run(c.Link, func(t *testing.T) {
				a, b := pair(t, New(c), 1<<16)
				d := b.c.(*device)
				for round := range 5 {
					if mode == EngineBackground {
						require.Eventually(t, func() bool { return d.own.sleeping.Load() != 0 }, 10*time.Second, time.Millisecond, "round %d", round)
					}
					b.buf[0] = byte(round + 1)
					a.send(verbs.SendWR{ID: 1, Op: verbs.OpRead, Flags: verbs.SendSignaled, NumSG: 1, SG: [verbs.MaxSGE]verbs.SGE{a.sge(0, len(a.buf))}, Remote: b.mr.Addr(), RKey: b.mr.RKey()})
					require.Equal(t, verbs.WCSuccess, a.completion().Status)
					require.Equal(t, byte(round+1), a.buf[0])
				}
			})
		}
	}
}

// TestIdleDeviceSleeps: a device that nobody uses makes no passes.
func TestIdleDeviceSleeps(t *testing.T) {
	a, b := pair(t, New(Config{Link: LinkUDP, Addr: localhost}), 64)
	b.recv(1, 0, 64)
	a.send(verbs.SendWR{ID: 2, Op: verbs.OpSend, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8})
	require.Equal(t, verbs.WCSuccess, a.completion().Status)
	for _, e := range []*end{a, b} {
		d := e.c.(*device)
		require.Eventually(t, func() bool { return d.own.sleeping.Load() != 0 }, 10*time.Second, time.Millisecond)
	}
	require.Equal(t, uint64(1), b.completion().ID)
}

// TestRestIsHeard: a program that polls and then says that it rests is not waited for.
func TestRestIsHeard(t *testing.T) {
	d := openTest(t, Config{Engine: EngineInline}) // nobody stands in
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	d.background.wakeups = make(chan struct{}, 1)
	var wc [1]verbs.WC
	now := d.clock()
	for range 3 {
		c.Poll(wc[:])
		require.True(t, d.own.isPolled(now))
		now += ucs.Time(pollPeriod) - 1
		require.True(t, d.own.isPolled(now), "for one period")
		d.NotifyIdle()
		require.Len(t, d.background.wakeups, 1)
		<-d.background.wakeups
		require.False(t, d.own.isPolled(now))
		require.False(t, d.own.isPolled(now), "nor again before it polls")
	}
	c.Poll(wc[:])
	require.True(t, d.own.isPolled(now))
	require.False(t, d.own.isPolled(now+ucs.Time(pollPeriod)))
}
