package ucp

import "github.com/goucx/goucx/ucs/stats"

// Counters of a worker. The path of a single short send counts nothing.
const (
	cntReceived = iota
	cntUnexpected
	cntFragmented
	cntPending
	cntBad
	cntFailures
	cntAnnounced
	cntFetched
	cntRefused
	cntLate
	cntThrottled
	cntUnexpectedPeak
	cntUnhandled
	cntReleasedTwice
	cntSlept
	cntRead
	cntZcopy
	cntReplaced
	numCounters
)

var counterNames = [numCounters]string{
	cntReceived:   "received",   // active messages received, including fragments
	cntUnexpected: "unexpected", // messages that arrived before their receive was posted
	cntFragmented: "fragmented", // messages sent in fragments
	cntPending:    "pending",    // operations that waited for transport resources
	cntBad:        "bad",        // messages that violated the protocol, and later ones of the same connection
	cntFailures:   "failures",   // connections that ended

	cntAnnounced:      "announced",       // messages sent by rendezvous
	cntFetched:        "fetched",         // messages of other workers requested
	cntRefused:        "refused",         // messages of other workers rejected
	cntLate:           "late",            // messages for an operation that had completed before
	cntThrottled:      "throttled",       // senders put under flow control
	cntUnexpectedPeak: "unexpected_peak", // maximum bytes of unexpected messages held

	cntUnhandled:     "unhandled",      // active messages without a handler
	cntReleasedTwice: "released_twice", // repeated releases of a retained message
	cntRead:          "read",           // messages read from the sender's memory
	cntZcopy:         "zcopy",          // puts and gets without a copy
	cntReplaced:      "replaced",       // lane failovers
	cntSlept:         "slept",          // sleeps of a wait
}

// Stats returns the counters of the worker ("ucp.") and of its interfaces
// ("transport/device."). Reading them is safe from any goroutine.
func (w *Worker) Stats() *stats.Group { return &w.stats }
