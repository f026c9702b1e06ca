package ucp

import "github.com/goucx/goucx/ucs/stats"

// Counters of a worker. The path of a single short send counts nothing.
const (
	cntReceived = iota
	cntUnexpected
	cntFragmented
	cntPending
	cntProtocolError
	cntFailures
	cntRndvSent
	cntRndvRequested
	cntRejected
	cntStale
	cntRndvOnly
	cntUnexpectedPeak
	cntUnhandled
	cntDoubleRelease
	cntSlept
	cntRndvRead
	cntZcopy
	cntFailover
	numCounters
)

var counterNames = [numCounters]string{
	cntReceived:      "received",   // active messages received, including fragments
	cntUnexpected:    "unexpected", // messages that arrived before their receive was posted
	cntFragmented:    "fragmented", // messages sent in fragments
	cntPending:       "pending",    // operations that waited for transport resources
	cntProtocolError: "bad",        // messages that violated the protocol, and later ones of the same connection
	cntFailures:      "failures",   // connections that ended

	cntRndvSent:       "announced",       // messages sent by rendezvous
	cntRndvRequested:  "fetched",         // messages of other workers requested
	cntRejected:       "refused",         // messages of other workers rejected
	cntStale:          "late",            // messages for an operation that had completed before
	cntRndvOnly:       "throttled",       // senders put under flow control
	cntUnexpectedPeak: "unexpected_peak", // maximum bytes of unexpected messages held

	cntUnhandled:     "unhandled",      // active messages without a handler
	cntDoubleRelease: "released_twice", // repeated releases of a retained message
	cntRndvRead:      "read",           // messages read from the sender's memory
	cntZcopy:         "zcopy",          // puts and gets without a copy
	cntFailover:      "replaced",       // lane failovers
	cntSlept:         "slept",          // sleeps of a wait
}

// Stats returns the counters of the worker ("ucp.") and of its interfaces
// ("transport/device."). Reading them is safe from any goroutine.
func (w *Worker) Stats() *stats.Group { return &w.t.stats }
