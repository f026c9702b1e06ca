package ucptest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

var wakeupCases = []Case{
	{"115 descriptor, arm, signal", wakeupDescriptor},
	{"115 signal and the end of a context wake every kind of wait", wakeupWaits},
	{"115 a storm of signals loses no message", wakeupStorm},
	{"115 a ping-pong of workers that sleep at once", wakeupPingPong},
	{"116 several workers in one poll set", wakeupSet},
	{"117 thread modes, address, names", wakeupModes},
	{"118 requests tell of themselves", wakeupStrings},
	{"119 settings: fields, bad values, sections", wakeupSettings},
}

// alone makes a pair of workers of that mode that are connected, and that are not
// driven any more; over a transport
// that reaches only its own worker they are the same.
func alone(p *Pair, mode ucp.ThreadMode, spin time.Duration) (a, b *ucp.Worker, ab ucp.Endpoint) {
	p.T.Helper()
	newOne := func() *ucp.Worker {
		w, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: mode, Spin: spin})
		require.NoError(p.T, err)
		p.T.Cleanup(func() { require.NoError(p.T, w.Close()) })
		return w
	}
	b = newOne()
	if a = b; !p.Alone() {
		a = newOne() // the first to close
	}
	ab = p.Connect(a, b)
	require.NoError(p.T, p.sendAddress(a, b, ab))
	return a, b, ab
}

// sendAddress drives a and b until b has the address of a.
func (p *Pair) sendAddress(a, b *ucp.Worker, ab ucp.Endpoint) error {
	ab.TagSendUint64(0, 1)
	r := b.TagRecv(make([]byte, 8), 1, exact)
	for !r.Done() && p.deadline.Err() == nil {
		a.Progress()
		b.Progress()
	}
	return r.Err()
}

// descriptor gives w's event descriptor, or skips where there is none.
func descriptor(t *testing.T, w *ucp.Worker) int {
	t.Helper()
	fd, err := w.EventFD()
	if errors.Is(err, ucp.ErrUnsupported) {
		t.Skip("no event descriptors here")
	}
	require.NoError(t, err)
	return fd
}

// arm progresses until w takes it.
func arm(p *Pair, w *ucp.Worker) {
	p.T.Helper()
	for err := w.Arm(); err != nil; err = w.Arm() {
		require.ErrorIs(p.T, err, ucp.ErrBusy)
		require.NoError(p.T, p.deadline.Err(), "never idle")
		w.Progress()
	}
}

// readable waits for one of fds, at most limit, and says which is.
func readable(t *testing.T, limit time.Duration, fds ...int) int {
	t.Helper()
	set := shmem.NewPollSet(fds...)
	for end := ucs.Now().Add(limit); ; {
		n, err := set.Wait(len(fds), max(end.Sub(ucs.Now()), 0))
		require.NoError(t, err)
		for i := range fds {
			if n > 0 && set.Ready(i) {
				return i
			}
		}
		if !ucs.Now().Before(end) {
			return -1
		}
	}
}

func wakeupDescriptor(t *testing.T, p *Pair) {
	_, b, ab := alone(p, p.mode, 0)
	fd := descriptor(t, b)
	for round := range 20 {
		arm(p, b)
		require.Equal(t, -1, readable(t, 0, fd), "armed and quiet")
		require.NoError(t, ab.TagSendUint64(uint64(round), 1).Err())
		err := error(nil)
		for err == nil { // what makes the connection wakes too, and goes before
			require.Equal(t, 0, readable(t, patience, fd), "a message")
			err = b.Arm()
		}
		require.ErrorIs(t, err, ucp.ErrBusy, "it waits")
		m, err := b.TagRecv(make([]byte, 8), 1, exact).Wait(p.deadline)
		require.NoError(t, err)
		require.Equal(t, 8, m.Len)
	}
	arm(p, b)
	b.Signal()
	require.Equal(t, 0, readable(t, patience, fd), "a signal")
	require.ErrorIs(t, b.Arm(), ucp.ErrBusy)
	arm(p, b)
	require.Equal(t, -1, readable(t, 0, fd))
}

func wakeupWaits(t *testing.T, p *Pair) {
	cause := errors.New("enough")
	for name, spin := range map[string]time.Duration{"asleep": time.Nanosecond, "spinning": -1, "default": 0} {
		_, b, _ := alone(p, p.mode, spin)
		r := b.TagRecv(make([]byte, 8), 1, exact)
		for what, wait := range map[string]func(context.Context) error{
			"run":     b.Run,
			"until":   func(ctx context.Context) error { return b.WaitUntil(ctx, func() bool { return false }) },
			"receive": func(ctx context.Context) error { _, err := r.Wait(ctx); return err },
			"request": func(ctx context.Context) error { return r.Request.Wait(ctx) },
		} {
			for _, after := range []time.Duration{0, time.Microsecond, 100 * time.Microsecond, 5 * time.Millisecond} {
				ctx, cancel := context.WithCancelCause(p.deadline)
				if after == 0 {
					cancel(cause)
				} else {
					time.AfterFunc(after, func() { cancel(cause) })
				}
				require.ErrorIs(t, wait(ctx), cause, "%s, %s, after %v", name, what, after)
			}
			short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			require.ErrorIs(t, wait(short), context.DeadlineExceeded)
			cancel()
		}
		r.Cancel()
		r.Drop()
	}
}

// wakeupStorm: a goroutine signals all the time while messages come to a worker
// that sleeps at once.
func wakeupStorm(t *testing.T, p *Pair) {
	a, b, ab := alone(p, ucp.ThreadMulti, time.Nanosecond)
	n := scaled(3000)
	var over atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !over.Load() {
			a.Signal()
			b.Signal()
			time.Sleep(10 * time.Microsecond)
		}
	})
	wg.Go(func() {
		for i := range uint64(n) {
			if err := ab.TagSendUint64(i, ucp.Tag(i)).Wait(p.deadline); err != nil {
				t.Errorf("send %d: %v", i, err)
				return
			}
		}
	})
	for i := range n {
		_, err := b.TagRecv(make([]byte, 8), ucp.Tag(i), exact).Wait(p.deadline)
		require.NoError(t, err, "message %d", i)
	}
	over.Store(true)
	wg.Wait()
}

// wakeupPingPong: a wait that finds its message in the pass before a sleep does not sleep.
func wakeupPingPong(t *testing.T, p *Pair) {
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		a, b, ab := alone(p, mode, time.Nanosecond)
		n := scaled(500)
		var wg sync.WaitGroup
		if a != b {
			ba := p.Connect(b, a)
			wg.Go(func() {
				for i := range n {
					if _, err := b.TagRecv(make([]byte, 8), 1, exact).Wait(p.deadline); err != nil {
						t.Errorf("message %d: %v", i, err)
						return
					}
					ba.TagSendUint64(uint64(i), 1)
				}
			})
		}
		for i := range n {
			r := ab.TagSendUint64(uint64(i), 1)
			_, err := a.TagRecv(make([]byte, 8), 1, exact).Wait(p.deadline)
			require.NoError(t, err, "answer %d", i)
			require.NoError(t, r.Wait(p.deadline))
		}
		wg.Wait()
	}
}

func wakeupSet(t *testing.T, p *Pair) {
	const n = 3
	var ws [n]*ucp.Worker
	var eps [n]ucp.Endpoint
	fds := make([]int, n)
	for i := range ws {
		_, ws[i], eps[i] = alone(p, p.mode, 0)
		fds[i] = descriptor(t, ws[i])
	}
	for round := range 3 * n {
		for _, w := range ws {
			arm(p, w)
		}
		require.Equal(t, -1, readable(t, 0, fds...))
		k := round % n
		require.NoError(t, eps[k].TagSendUint64(1, 1).Err())
		require.Equal(t, k, readable(t, patience, fds...), "only the worker that has something")
		_, err := ws[k].TagRecv(make([]byte, 8), 1, exact).Wait(p.deadline)
		require.NoError(t, err)
	}
}

func wakeupModes(t *testing.T, p *Pair) {
	for mode, name := range map[ucp.ThreadMode]string{
		ucp.ThreadMulti: "multi", ucp.ThreadSerialized: "serialized", ucp.ThreadSingle: "single",
	} {
		w, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: mode})
		require.NoError(t, err)
		assert.Equal(t, mode, w.Mode())
		assert.Equal(t, name, mode.String())
		a := w.Address()
		want := a.String()
		assert.True(t, strings.HasPrefix(want, "worker "))
		a[len(a)/2]++ // a copy: the worker keeps its own
		assert.Equal(t, want, w.Address().String())
		require.NoError(t, w.Close())
	}
	_, err := p.Context.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle + 1})
	require.ErrorIs(t, err, ucp.ErrInvalid)
}

func wakeupStrings(t *testing.T, p *Pair) {
	a, b, ab := alone(p, ucp.ThreadSingle, 0)
	require.Equal(t, "request: done", ucp.Request{}.String())
	r := b.TagRecv(nil, 1, exact)
	require.Contains(t, r.String(), "tag receive")
	r.Cancel()
	require.Contains(t, r.String(), "canceled")
	r.Drop()
	var s ucp.Request
	for s == (ucp.Request{}) {
		s = ab.TagSend(make([]byte, 2048), 2)
	}
	text := s.String()
	require.Contains(t, text, "tag send")
	require.Contains(t, text, ab.Info().Lanes[0].Transport+"/", "its lane")
	s.Cancel()
	require.ErrorIs(t, s.Err(), ucp.ErrCanceled)
	require.NotEqual(t, text, s.String())
	ab.Abort(nil)
	require.Contains(t, ab.TagSend(nil, 1).String(), "closed")
	_ = a
}

func wakeupSettings(t *testing.T, p *Pair) {
	open := func(env ...string) error {
		c, err := p.Factory.open(ucp.Config{}, env...)
		if err != nil {
			return err
		}
		w, err := c.NewWorker(ucp.WorkerConfig{})
		if err == nil {
			err = w.Close()
		}
		return errors.Join(err, c.Close())
	}
	require.NoError(t, open(), "nothing is required")
	require.NoError(t, open("UCX_SPIN_TIME=0", "UCX_SLOW_EVENT_PASSES=7"))
	require.NoError(t, open("UCX_SPIN_TIME=inf"))
	for _, bad := range []string{"UCX_SPIN_TIME=soon", "UCX_SPIN_TIME=-1us", "UCX_SLOW_EVENT_PASSES=0"} {
		name, value, _ := strings.Cut(bad, "=")
		require.ErrorContains(t, open(bad), name, "the error names the setting")
		require.ErrorContains(t, open(bad), value)
	}
	err := open("UCX_SPIN_TIME=soon", "UCX_SLOW_EVENT_PASSES=0")
	require.ErrorContains(t, err, "UCX_SPIN_TIME")
	require.ErrorContains(t, err, "UCX_SLOW_EVENT_PASSES", "all faults at once")
}
