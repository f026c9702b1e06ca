package async

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/shmem"
)

// whenReady runs fn once in the async goroutine, as the function of a watched descriptor.
func whenReady(t *testing.T, a *Async, fn func()) {
	t.Helper()
	e, err := shmem.NewEventFD()
	if errors.Is(err, ucs.ErrUnsupported) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	require.NoError(t, a.Watch(e.FD(), func() {
		require.NoError(t, a.Unwatch(e.FD()))
		fn()
	}))
	require.NoError(t, e.Signal())
}

// TestOwnerSoon: a function of the goroutine has a function run inside. It runs again as
// long as it is wanted, and not at all where the worker has done the work.
func TestOwnerSoon(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	var wanted atomic.Bool
	runs, done := 0, make(chan struct{})
	whenReady(t, a, func() {
		wanted.Store(true)
		o.CallInside(&wanted, func() {
			if runs++; runs == 3 {
				wanted.Store(false)
				close(done)
			}
		})
	})
	fired(t, done)

	asked, c := signal()
	whenReady(t, a, func() {
		wanted.Store(true)
		o.CallInside(&wanted, func() { runs++ })
		wanted.Store(false) // the worker did it
		asked(ucs.Now())
	})
	fired(t, c)
	later, c := signal()
	inGoroutine(t, a, 5*time.Millisecond, later) // the worker stays outside until then
	fired(t, c)
	inside(o, func() { require.Equal(t, 3, runs) })
}
