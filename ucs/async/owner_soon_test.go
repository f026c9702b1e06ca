package async

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// TestOwnerSoon: a function of the goroutine has a function run inside. It runs again as
// long as it is wanted, and not at all where the worker has done the work.
func TestOwnerSoon(t *testing.T) {
	a := start(t, Config{})
	o := newOwner(t, a)
	var wanted atomic.Bool
	runs, done := 0, make(chan struct{})
	a.After(0, func(ucs.Time) {
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
	a.After(0, func(now ucs.Time) {
		wanted.Store(true)
		o.CallInside(&wanted, func() { runs++ })
		wanted.Store(false) // the worker did it
		asked(now)
	})
	fired(t, c)
	later, c := signal()
	a.After(5*time.Millisecond, later) // the worker stays outside until then
	fired(t, c)
	inside(o, func() { require.Equal(t, 3, runs) })
}
