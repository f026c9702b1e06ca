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
	cntReceived:   "received",   // active messages taken in, fragments among them
	cntUnexpected: "unexpected", // messages that came before their receive
	cntFragmented: "fragmented", // messages sent in fragments
	cntPending:    "pending",    // operations that waited for resources
	cntBad:        "bad",        // messages that broke the protocol, and what followed them
	cntFailures:   "failures",   // connections that ended

	cntAnnounced:      "announced",       // messages sent by rendezvous
	cntFetched:        "fetched",         // messages of other workers asked for
	cntRefused:        "refused",         // messages of other workers turned down
	cntLate:           "late",            // messages that crossed the end of what they name
	cntThrottled:      "throttled",       // senders told to announce everything
	cntUnexpectedPeak: "unexpected_peak", // bytes of unexpected messages, the most ever held

	cntUnhandled:     "unhandled",      // active messages without a handler
	cntReleasedTwice: "released_twice", // releases of kept messages that were released
	cntRead:          "read",           // messages read out of their senders' memory
	cntZcopy:         "zcopy",          // puts and gets out of and into the program's own memory
	cntReplaced:      "replaced",       // lanes that another transport took over
	cntSlept:         "slept",          // times that a wait slept until something came
}

// Stats are the counters of the worker ("ucp.") and its interfaces
// ("transport/device."). Reading them is safe from any goroutine.
func (w *Worker) Stats() *stats.Group { return &w.stats }
