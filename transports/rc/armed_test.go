package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/wireup/machine"
)

// enteredAtRest connects a to b by first, waits until b's async goroutine has nothing
// to do, and keeps it out.
func enteredAtRest(t *testing.T) (a, b *end, first uct.Endpoint) {
	c := Component(inproc())
	a, b = newEnd(t, c, 1), newEnd(t, c, 2)
	first, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return first.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 && b.sees(func() bool { return !b.AlarmSet() }) }, a, b)
	b.EnterWait()
	b.ud.poll(udRecvs)
	return a, b, first
}

// TestHearsAfterProgress: where a pass drains the event of a connection message, the
// async goroutine hears what connects after it nevertheless.
func TestHearsAfterProgress(t *testing.T) {
	a, b, _ := enteredAtRest(t)
	second, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	require.Equal(t, ucs.NoResource, second.AMUint64(1, 0, 0))
	until(t, func() bool { return readable(b.channel.FD()) }, a)
	b.ProgressDepth++ // as in Progress
	b.nextService = 0
	b.serviceTimers()
	b.ProgressDepth--
	b.Leave()
	third, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return third.AMUint64(1, 0, 0) == ucs.OK }, a)
	until(t, func() bool { return second.AMUint64(1, 0, 0) == ucs.OK }, a)
}

// TestHearsAfterMost: where a pass takes as many connection messages as it may, the async
// goroutine hears what connects after it nevertheless.
func TestHearsAfterMost(t *testing.T) {
	a, b, first := enteredAtRest(t)
	a.inside(func() {
		a.sendConnMsg(&connMsg{msg: machine.Msg{Kind: machine.MsgSuspendNak, From: 1, To: 1}}, &b.self, first.(*ep).ah)
	})
	until(t, func() bool { n, _ := b.ud.poll(1); return n == 1 }, a)
	b.Leave()
	second, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	until(t, func() bool { return second.AMUint64(1, 0, 0) == ucs.OK }, a)
}

// TestArmsAfterDrainedSends: a send completion that was drained before the worker arms for the first
// time, at the end of another connection, leaves Arm as much room as it needs.
func TestArmsAfterDrainedSends(t *testing.T) {
	c := Component(inproc())
	a, b, other := newEnd(t, c, 1), newEnd(t, c, 2), newEnd(t, c, 3)
	var eps [2]*ep
	for i, to := range []*end{b, other} {
		x, err := a.NewEndpoint(to.address())
		require.NoError(t, err)
		eps[i] = x.(*ep)
		until(t, func() bool { return x.AMUint64(1, 0, 0) == ucs.OK }, a, to)
		until(t, func() bool { return len(to.got) == 1 }, a, to)
	}
	require.Equal(t, ucs.OK, eps[0].AMUint64(1, 0, 0))
	require.Equal(t, ucs.InProgress, eps[0].Flush(uct.FlushRemote, 1)) // its completion is signaled
	until(t, func() bool {
		a.inside(eps[1].qps[0].completeAcked)
		return len(a.drainedSends) > 0
	}, b)
	until(t, func() bool {
		st := a.Arm(uct.EventSend | uct.EventRecv)
		return st == ucs.OK || st == ucs.InProgress
	}, a)
	require.Empty(t, a.drainedSends)
}
