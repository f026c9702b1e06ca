package ucttest

import (
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/async"
)

// Seldom returns a function that evaluates cond once every ten periods of the async goroutine, and
// returns false in between. A test uses it if cond enters a worker that the async goroutine is to
// serve: a critical section runs only after the worker has been outside for a period. It is not
// safe for concurrent use.
func Seldom(cond func() bool) func() bool {
	var next ucs.Time
	return func() bool {
		if ucs.Now() < next {
			return false
		}
		holds := cond()
		next = ucs.Now().Add(10 * async.DefaultPeriod)
		return holds
	}
}
