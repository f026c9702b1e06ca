package verbstest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/verbs"
)

var queueCases = []testCase{
	{"batches", 0, queueBatches},
	{"empty", 0, queueEmpty},
	{"overrun", 0, queueOverrun},
	{"ignore-overrun", 0, queueIgnoreOverrun},
	{"resize", 0, queueResize},
	{"single-threaded", 0, queueSingleThreaded},
}

// queueBatches: Poll gives fewer than asked for only where it emptied the queue.
func queueBatches(e *env) {
	d := e.rc(nil)
	c := d.a.sendCQ
	for _, size := range []int{1, 2, 3, 7, 20, 40} {
		c.paused = true
		for i := range uint64(20) {
			d.a.send(d.write(i))
		}
		e.pass(50 * time.Millisecond) // all are complete, on a slow machine too
		wcs := make([]verbs.WC, size)
		next := uint64(0)
		for next < 20 {
			n := c.Poll(wcs)
			require.Positive(e, n)
			require.Equal(e, min(size, 20-int(next)), n)
			for _, w := range wcs[:n] {
				require.Equal(e, next, w.ID)
				require.Equal(e, verbs.WCSuccess.String(), w.Status.String())
				next++
			}
		}
		require.Zero(e, c.Poll(wcs))
		c.paused = false
	}
}

func queueEmpty(e *env) {
	c := e.sides[0].cq(4)
	require.Zero(e, c.Poll(nil))
	require.Zero(e, c.Poll(make([]verbs.WC, 4)))
}

// overrun has a queue of depth get more completions than it holds.
func (e *env) overrun(ignore bool) *duo {
	e.Helper()
	probe, err := e.sides[0].CreateCQ(verbs.CQConfig{Depth: 4, IgnoreOverrun: ignore})
	e.unlessSupported(err, "a queue that ignores overruns")
	require.NoError(e, probe.Close())
	q := e.sides[0].cqOf(verbs.CQConfig{Depth: 4, IgnoreOverrun: ignore})
	d := e.rc(func(a, _ *setup) { a.sendCQ, a.caps.MaxSend = q, 2048 })
	d.a.sendCQ.paused = true
	for range 1024 {
		if d.a.state() != verbs.StateRTS {
			break
		}
		d.a.send(d.write(1))
		e.poll()
	}
	e.settle()
	return d
}

// queueOverrun: the queue is unusable from then on, and so are the queue pairs that complete into
// it. One event reports it.
func queueOverrun(e *env) {
	d := e.overrun(false)
	e.until("the queue to be unusable", func() bool {
		n := d.a.sendCQ.Poll(make([]verbs.WC, 1))
		return n < 0
	})
	d.a.fails()
	v := e.sides[0].event(verbs.EventCQErr)
	require.Equal(e, d.a.sendCQ.CQ, v.CQ)
	for {
		v, ok := e.sides[0].TryAsync()
		if !ok {
			break
		}
		require.NotEqual(e, verbs.EventCQErr.String(), v.Type.String(), "told once")
		e.sides[0].Ack(v)
	}
}

// queueIgnoreOverrun: what finds no room is lost, and all goes on.
func queueIgnoreOverrun(e *env) {
	d := e.overrun(true)
	require.Equal(e, verbs.StateRTS.String(), d.a.state().String())
	d.a.sendCQ.paused = false
	e.settle()
	require.False(e, d.a.sendCQ.dead)
	require.GreaterOrEqual(e, len(d.a.sendCQ.done), 4)
	d.a.sendCQ.done = nil
	d.a.send(d.write(2))
	d.a.sent(2)
}

// queueResize: a queue can grow, and shrink to what it holds, not below.
func queueResize(e *env) {
	d := e.rc(nil)
	c := d.a.sendCQ
	e.unlessSupported(c.Resize(64), "resizing a completion queue")
	c.paused = true
	for i := range uint64(20) {
		d.a.send(d.write(i))
	}
	e.settle()
	e.refused(c.Resize(10), "below what it holds")
	e.refused(c.Resize(0), "no depth")
	e.refused(c.Resize(e.sides[0].Attr().MaxCQE+1), "beyond the device")
	require.NoError(e, c.Resize(200))
	require.NoError(e, c.Resize(20))
	c.paused = false
	for i := range uint64(20) {
		d.a.sent(i)
	}
}

// queueSingleThreaded: a queue without lock does the same.
func queueSingleThreaded(e *env) {
	q := e.sides[0].cqOf(verbs.CQConfig{Depth: 64, SingleThreaded: true})
	d := e.rc(func(a, _ *setup) { a.sendCQ, a.recvCQ = q, q })
	d.stream(50, 100)
}
