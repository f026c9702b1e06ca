package ucp

import "github.com/goucx/goucx/ucs/stats"

// What a worker counts; nothing on the path of a single short send.
const (
	cntReceived = iota
	cntUnexpected
	cntFragmented
	cntPending
	cntBad
	cntFailures
	cntUnhandled
	cntReleasedTwice
	numCounters
)

var counterNames = [numCounters]string{
	cntReceived:   "received",   // active messages taken in, fragments among them
	cntUnexpected: "unexpected", // messages that came before their receive
	cntFragmented: "fragmented", // messages sent in fragments
	cntPending:    "pending",    // operations that waited for resources
	cntBad:        "bad",        // messages that broke the protocol, and what followed them
	cntFailures:   "failures",   // connections that ended

	cntUnhandled:     "unhandled",      // active messages without a handler
	cntReleasedTwice: "released_twice", // releases of kept messages that were released
}

// Stats are the counters of the worker ("ucp.") and its interfaces
// ("transport/device."). Reading them is safe from any goroutine.
func (w *Worker) Stats() *stats.Group { return &w.stats }
