package soft

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
)

func testChannel(t testing.TB, d *device) *compChannel {
	t.Helper()
	ch, err := d.CreateCompChannel()
	require.NoError(t, err)
	closeAtEnd(t, ch)
	return ch.(*compChannel)
}

// events takes all events that there are.
func events(ch *compChannel) (cookies []uint64) {
	for {
		c, ok := ch.TryEvent()
		if !ok {
			return cookies
		}
		cookies = append(cookies, c)
	}
}

func TestArm(t *testing.T) {
	good, bad := verbs.WC{}, verbs.WC{Status: verbs.WCRetryExcErr}
	type step struct {
		arm       string // "", "any", "solicited"
		w         *verbs.WC
		solicited bool
	}
	for _, tc := range []struct {
		name  string
		steps []step
		want  int
	}{
		{"not armed", []step{{"", &good, true}}, 0},
		{"any", []step{{"any", &good, false}}, 1},
		{"one event per arm", []step{{"any", &good, false}, {"", &good, false}, {"", &bad, true}}, 1},
		{"armed again", []step{{"any", &good, false}, {"any", &good, false}}, 2},
		{"solicited only", []step{{"solicited", &good, false}}, 0},
		{"a solicited one", []step{{"solicited", &good, false}, {"", &good, true}}, 1},
		{"an error", []step{{"solicited", &bad, false}}, 1},
		{"any covers solicited", []step{{"any", nil, false}, {"solicited", &good, false}}, 1},
		{"solicited becomes any", []step{{"solicited", nil, false}, {"any", &good, false}}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := openTest(t, Config{})
			ch := testChannel(t, d)
			c := testCQ(t, d, verbs.CQConfig{Depth: 10, Channel: ch, Cookie: 7})
			for _, s := range tc.steps {
				if s.arm != "" {
					require.Equal(t, ucs.OK, c.Arm(s.arm == "solicited"))
				}
				if s.w != nil {
					c.push(s.w, s.solicited)
				}
			}
			got := events(ch)
			assert.Len(t, got, tc.want)
			for _, k := range got {
				assert.Equal(t, uint64(7), k)
			}
		})
	}
}

func TestArmRefuses(t *testing.T) {
	d := openTest(t, Config{})
	assert.Equal(t, ucs.InvalidParam, testCQ(t, d, verbs.CQConfig{Depth: 1}).Arm(false), "no channel")
	ch := testChannel(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: 1, Channel: ch})
	pushed(c, 1, 0, 1)
	assert.Equal(t, ucs.OK, c.Arm(false))
	assert.Empty(t, events(ch), "what came before gives no event")
	pushed(c, 1, 1, 1)
	e, ok := d.TryAsync()
	require.True(t, ok)
	d.Ack(e)
	assert.Equal(t, ucs.Closed, c.Arm(false), "overrun")
	refused(t, ch.Close(), ucs.ErrBusy, "1 completion queues")
}

// TestArmRace: after an Arm and a Poll that found nothing an event comes for
// what follows, whatever the engine does between.
func TestArmRace(t *testing.T) {
	const n = 3000
	d := openTest(t, Config{})
	ch := testChannel(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: n, Channel: ch})
	go pushed(c, 1, 0, n)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wcs [16]verbs.WC
	for got := 0; got < n; {
		k := c.pop(wcs[:])
		if got += k; k > 0 {
			continue
		}
		require.Equal(t, ucs.OK, c.Arm(false))
		if k = c.pop(wcs[:]); k > 0 {
			got += k
			continue
		}
		_, err := ch.Event(ctx)
		require.NoError(t, err, "%d of %d", got, n)
	}
}

// TestChannelTurns: a queue with many events leaves room for others.
func TestChannelTurns(t *testing.T) {
	d := openTest(t, Config{})
	ch := testChannel(t, d)
	a := testCQ(t, d, verbs.CQConfig{Depth: 10, Channel: ch, Cookie: 1})
	b := testCQ(t, d, verbs.CQConfig{Depth: 10, Channel: ch, Cookie: 2})
	for range 3 {
		a.Arm(false)
		pushed(a, 1, 0, 1)
	}
	b.Arm(false)
	pushed(b, 1, 0, 1)
	assert.Equal(t, []uint64{1, 2, 1, 1}, events(ch))
}

func TestCloseDropsEvents(t *testing.T) {
	d := openTest(t, Config{})
	ch := testChannel(t, d)
	var cqs []*cq
	for i := range 3 {
		c, err := d.CreateCQ(verbs.CQConfig{Depth: 10, Channel: ch, Cookie: uint64(i)})
		require.NoError(t, err)
		cqs = append(cqs, c.(*cq))
		c.Arm(false)
		pushed(c.(*cq), 1, 0, 1)
	}
	require.NoError(t, cqs[1].Close())
	require.NoError(t, cqs[1].Close())
	assert.Equal(t, []uint64{0, 2}, events(ch))
	cqs[0].Arm(false)
	pushed(cqs[0], 1, 0, 1)
	require.NoError(t, cqs[0].Close())
	assert.Empty(t, events(ch))
	require.NoError(t, cqs[2].Close())
	assert.Equal(t, -1, cqs[2].Poll(make([]verbs.WC, 1)))
}

func TestEventWaits(t *testing.T) {
	d := openTest(t, Config{})
	ch := testChannel(t, d)
	c := testCQ(t, d, verbs.CQConfig{Depth: 10, Channel: ch, Cookie: 3})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := ch.Event(ctx)
	require.ErrorIs(t, err, context.Canceled)

	const waiters = 4
	var all sync.WaitGroup
	for range waiters {
		all.Go(func() {
			k, err := ch.Event(t.Context())
			assert.NoError(t, err)
			assert.Equal(t, uint64(3), k)
		})
	}
	for range waiters { // each gets one, though the bell holds one
		c.Arm(false)
		pushed(c, 1, 0, 1)
	}
	all.Wait()
	assert.Empty(t, events(ch))
}

func TestCloseWakesWaiters(t *testing.T) {
	d := openTest(t, Config{})
	ch, err := d.CreateCompChannel()
	require.NoError(t, err)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			_, err := ch.Event(context.Background())
			assert.ErrorIs(t, err, ucs.ErrClosed)
		})
	}
	require.NoError(t, ch.Close())
	require.NoError(t, ch.Close())
	all.Wait()
	assert.Equal(t, -1, ch.FD())
	_, err = d.CreateCQ(verbs.CQConfig{Depth: 1, Channel: ch})
	refused(t, err, ucs.ErrClosed, "channel")
}
