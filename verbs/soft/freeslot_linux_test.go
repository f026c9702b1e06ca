package soft

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestSlotFreeAtCompletion: the slot of a work request is free before its completion can be polled. A
// program whose send queue is full may post one work request for each completion, while another
// goroutine runs the engine.
func TestSlotFreeAtCompletion(t *testing.T) {
	c := Config{Link: LinkUDP, Addr: localhost, Engine: EngineThread}
	x, y := newEnd(t, New(c), verbs.RC, 64), newEnd(t, New(c), verbs.RC, 64)
	x.connect(y)
	y.connect(x)
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.SendSignaled | verbs.SendInline, InlineLen: 8, Remote: y.mr.Addr(), RKey: y.mr.RKey()}
	x.post(1, wr)
	x.completion(y)

	q, queue := x.qp.(*qp), x.cq.(*cq)
	tail := queue.tail.lock() // keeps the engine from pushing the completion
	x.post(1, wr)
	free := func() bool { return q.sq.head.Load() == 2 }
	for end := ucs.Now().Add(10 * time.Second); !free() && ucs.Now() < end; {
		time.Sleep(time.Millisecond)
	}
	ok := free()
	queue.tail.publish(tail)
	require.True(t, ok, "the slot is not free before the completion is pushed")
	require.Equal(t, verbs.WCSuccess, x.completion(y).Status)
}
