package rc

// Counters of an iface. None is on the path of a single message.
const (
	statConnected = iota
	statAccepted
	statRefused
	statFailed
	statGarbage
	statPending
	statConnMsgs
	statCrossed
	statSuspends
	statSections
	statOpensDropped
	statHalfOpenEvicted
	numStats
)

var statNames = [numStats]string{
	statConnected:       "connected",          // connections that this side opened
	statAccepted:        "accepted",           // connections that peers opened
	statRefused:         "refused",            // connections of peers that were rejected
	statFailed:          "failed",             // connections that ended with an error
	statGarbage:         "garbage",            // malformed messages
	statPending:         "pending",            // tokens added to pending queues
	statConnMsgs:        "notes",              // connection messages sent
	statCrossed:         "crossed",            // connections that both sides opened at once
	statSuspends:        "naps",               // suspensions proposed
	statSections:        "sections",           // sections of the async goroutine
	statOpensDropped:    "hellos_passed_over", // OPENs dropped, since too many connections are half-open
	statHalfOpenEvicted: "half_open_given_up", // half-open connections evicted for others
}
