package soft

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/internal/objects"
)

func TestAsyncOrder(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	want := []verbs.AsyncEvent{
		{Type: verbs.EventPortErr, Port: 1}, {Type: verbs.EventCQErr, CQ: c}, {Type: verbs.EventPortActive, Port: 1},
	}
	for _, e := range want {
		d.raise(e)
	}
	for _, w := range want {
		e, err := d.Async(t.Context())
		require.NoError(t, err)
		assert.Equal(t, w, e)
		d.Ack(e)
	}
	_, ok := d.TryAsync()
	assert.False(t, ok)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Async(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

// TestCloseWaitsForAcks: an object whose event was taken is closed when the
// event is acknowledged; one that was not taken goes with it.
func TestCloseWaitsForAcks(t *testing.T) {
	d := openTest(t, Config{})
	c, err := d.CreateCQ(verbs.CQConfig{Depth: 1})
	require.NoError(t, err)
	other := testCQ(t, d, verbs.CQConfig{Depth: 1})
	d.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
	d.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
	d.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: c})
	d.raise(verbs.AsyncEvent{Type: verbs.EventCQErr, CQ: other})
	a, _ := d.TryAsync()
	b, _ := d.TryAsync()

	closed := make(chan error)
	go func() { closed <- c.Close() }()
	for { // it has dropped the third
		if d.events.pending.Load() == 1 {
			break
		}
		spin(1000)
	}
	d.Ack(a)
	select {
	case <-closed:
		t.Fatal("closed with an event that was not acknowledged")
	default:
	}
	_, err = d.AllocTD(verbs.TDConfig{})
	require.NoError(t, err, "a close that waits holds nobody up")
	d.mu.Lock()
	d.open.Release(objects.TD)
	d.mu.Unlock()
	d.Ack(b)
	require.NoError(t, <-closed)
	d.Ack(b) // once more: nothing
	d.Ack(verbs.AsyncEvent{CQ: foreignCQ{}})

	e, ok := d.TryAsync()
	require.True(t, ok)
	assert.Same(t, other, e.CQ)
	d.Ack(e)
}

// TestCloseQPWaitsForAck: who handles an event may ask the queue pair meanwhile.
func TestCloseQPWaitsForAck(t *testing.T) {
	d := openTest(t, Config{})
	c := testCQ(t, d, verbs.CQConfig{Depth: 1})
	q, err := testPD(t, d).CreateQP(verbs.QPConfig{Type: verbs.RC, SendCQ: c, RecvCQ: c})
	require.NoError(t, err)
	d.raise(verbs.AsyncEvent{Type: verbs.EventCommEst, QP: q})
	e, ok := d.TryAsync()
	require.True(t, ok)
	closed := make(chan error)
	go func() { closed <- q.Close() }()
	for d.qps.find(q.QPN()) != nil {
		spin(1000)
	}
	assert.Equal(t, verbs.StateReset, e.QP.Query().State)
	require.ErrorIs(t, e.QP.Modify(&verbs.QPAttr{}, verbs.AttrState), ucs.ErrClosed)
	select {
	case <-closed:
		t.Fatal("closed with an event that was not acknowledged")
	default:
	}
	d.Ack(e)
	require.NoError(t, <-closed)
}

func TestCloseWakesAsync(t *testing.T) {
	p := New(Config{Link: LinkInproc, Engine: EngineInline})
	infos, err := p.Devices()
	require.NoError(t, err)
	ctx, err := p.Open(infos[0])
	require.NoError(t, err)
	got := make(chan error)
	go func() {
		_, err := ctx.Async(context.Background())
		got <- err
	}()
	require.NoError(t, ctx.Close())
	require.NoError(t, ctx.Close())
	refused(t, <-got, ucs.ErrClosed, `"inproc"`)
	assert.Equal(t, -1, ctx.AsyncFD())
	_, err = ctx.AllocPD()
	require.ErrorIs(t, err, ucs.ErrClosed)
	_, err = ctx.AllocTD(verbs.TDConfig{})
	require.ErrorIs(t, err, ucs.ErrClosed)
	_, err = ctx.CreateCQ(verbs.CQConfig{Depth: 1})
	require.ErrorIs(t, err, ucs.ErrClosed)
	_, err = ctx.CreateCompChannel()
	require.ErrorIs(t, err, ucs.ErrClosed)
	ctx.(*device).raise(verbs.AsyncEvent{Type: verbs.EventDeviceFatal}) // an engine that is late
	_, ok := ctx.TryAsync()
	assert.False(t, ok)
}

// TestAsyncNeverEmpty: a queue that always holds some does not grow.
func TestAsyncNeverEmpty(t *testing.T) {
	d := openTest(t, Config{})
	for i := range 1000 {
		d.raise(verbs.AsyncEvent{Type: verbs.EventPortErr, Port: uint8(i)})
		if i >= 3 {
			e, ok := d.TryAsync()
			require.True(t, ok)
			require.Equal(t, uint8(i-3), e.Port)
		}
	}
	assert.LessOrEqual(t, cap(d.events.queue), 16)
	assert.Equal(t, 3, d.events.count())
}

func TestAsyncRace(t *testing.T) {
	const raisers, each = 3, 500
	d := openTest(t, Config{})
	var all sync.WaitGroup
	for range raisers {
		all.Go(func() {
			for range each {
				d.raise(verbs.AsyncEvent{Type: verbs.EventPortErr, Port: 1})
			}
		})
	}
	for range 2 {
		all.Go(func() {
			for range raisers * each / 2 {
				e, err := d.Async(t.Context())
				assert.NoError(t, err)
				d.Ack(e)
			}
		})
	}
	all.Wait()
	_, ok := d.TryAsync()
	assert.False(t, ok)
}
