package async

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// After is like At, with a duration from now.
func (o *Owner) After(d time.Duration, fn func(now ucs.Time)) Timer {
	return o.At(ucs.Now().Add(d), fn)
}

// Next returns the time before which Poll has nothing to do; the largest Time if no timer is
// set. It may be called from any goroutine.
func (o *Owner) Next() ucs.Time { return ucs.Time(o.nextTimer.Load()) }
