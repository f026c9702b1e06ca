package ucp_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/goucx/goucx/ucp"
)

// processTime is what this process has used of all processors.
func processTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	require.NoError(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// An idle worker that waits costs nothing, whichever way it waits.
func TestIdleCostsNothing(t *testing.T) {
	for _, tr := range []string{"self", "shm"} {
		for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadSerialized, ucp.ThreadMulti} {
			for name, wait := range map[string]func(context.Context, *ucp.Worker) error{
				"run": func(ctx context.Context, w *ucp.Worker) error { return w.Run(ctx) },
				"receive": func(ctx context.Context, w *ucp.Worker) error {
					r := w.TagRecv(make([]byte, 8), 9, exact)
					defer r.Cancel()
					_, err := r.Wait(ctx)
					return err
				},
			} {
				t.Run(tr+"/"+mode.String()+"/"+name, func(t *testing.T) {
					a, b, ep := newPair(t, tr, mode)
					require.NoError(t, ep.TagSendUint64(1, 1).Wait(t.Context()))
					_, err := b.TagRecv(make([]byte, 8), 1, exact).Wait(t.Context())
					require.NoError(t, err)
					const span = 300 * time.Millisecond
					ctx, cancel := context.WithTimeout(t.Context(), span)
					defer cancel()
					before := processTime(t)
					require.ErrorIs(t, wait(ctx, a), context.DeadlineExceeded)
					used := processTime(t) - before
					t.Logf("%v of processor time in %v", used, span)
					assert.Less(t, used, span/4) // polling takes all of it, a sleep next to nothing
				})
			}
		}
	}
}

// A nap of WaitUntil is short, and most of the time is spent in it.
func TestWaitUntilNaps(t *testing.T) {
	w, _, _ := newPair(t, "shm", ucp.ThreadSingle)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	looks := 0
	before, began := processTime(t), time.Now()
	const span = 200 * time.Millisecond
	enough := func() bool { looks++; return looks > 64*5 && looks%64 == 0 && time.Since(began) >= span }
	require.NoError(t, w.WaitUntil(ctx, enough), "it goes on looking")
	used, took := processTime(t)-before, time.Since(began)
	t.Logf("%d looks, %v of processor time in %v", looks, used, took)
	assert.Less(t, used, took*3/4)
}

// endsUnseen ends after the last look at it and before it is first watched.
type endsUnseen struct {
	context.Context
	cancel func()
}

func (c endsUnseen) Done() <-chan struct{} {
	c.cancel()
	return c.Context.Done()
}

// Contexts that end before anybody has asked for their channel share one.
func TestContextEndsAsTheSleepBegins(t *testing.T) {
	for _, mode := range []ucp.ThreadMode{ucp.ThreadSingle, ucp.ThreadMulti} {
		w, _, _ := newPair(t, "shm", mode)
		for range 3 {
			ctx, cancel := context.WithCancel(context.Background())
			require.ErrorIs(t, w.Run(endsUnseen{ctx, cancel}), context.Canceled, mode)
		}
	}
}
