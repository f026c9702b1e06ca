package soft

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

// TestModeratedWait: a program that sleeps until the event is woken at the end of the period,
// although nothing polls.
func TestModeratedWait(t *testing.T) { overLinks(t, testModeratedWait) }

func testModeratedWait(t *testing.T, p *Provider) {
	a, b := pair(t, p, 64)
	require.NoError(t, verbs.Moderate(b.cq, 100, 5*time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range uint64(3) {
		b.recv(i, 0, 64)
		require.Equal(t, ucs.OK, b.cq.Arm(false))
		a.send(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.SendInline, InlineLen: 8})
		_, err := b.ch.Event(ctx)
		require.NoError(t, err)
		var wc [4]verbs.WC
		require.Equal(t, 1, b.cq.Poll(wc[:]))
		require.Equal(t, i, wc[0].ID)
	}
}

// TestModeratedClose: a queue with a delayed event can be closed, and no event comes of it. A
// shorter moderation raises a delayed event at once.
func TestModeratedClose(t *testing.T) {
	d := openTest(t, Config{Engine: EngineInline})
	ch, err := d.CreateCompChannel()
	require.NoError(t, err)
	closeAtEnd(t, ch)
	push := func(c *cq) { require.True(t, c.push(&verbs.WC{}, false)) }
	for _, close := range []bool{true, false} {
		v, err := d.CreateCQ(verbs.CQConfig{Depth: 16, Channel: ch})
		require.NoError(t, err)
		c := v.(*cq)
		require.NoError(t, verbs.Moderate(c, 10, time.Millisecond))
		require.Equal(t, ucs.OK, c.Arm(false))
		push(c)
		require.NotZero(t, d.own.numTimed.Load())
		if close {
			require.NoError(t, c.Close())
			d.own.expireEvents(never - 1)
			_, ok := ch.TryEvent()
			require.False(t, ok)
			continue
		}
		require.NoError(t, verbs.Moderate(c, 2, 0))
		_, ok := ch.TryEvent()
		require.True(t, ok)
		require.Equal(t, ucs.OK, c.Arm(false))
		push(c)
		d.own.expireEvents(never - 1)
		_, ok = ch.TryEvent()
		require.False(t, ok, "no period")
		push(c)
		_, ok = ch.TryEvent()
		require.True(t, ok)
		require.NoError(t, c.Close())
	}
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	refused(t, c.Moderate(4, 0), ucs.ErrInvalid, "no channel")
	refused(t, c.Moderate(4, time.Hour), ucs.ErrInvalid, "1h0m0s")
}
