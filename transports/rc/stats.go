package rc

// What an iface counts. None of it is on the path of a single message.
const (
	statConnected = iota
	statAccepted
	statRefused
	statFailed
	statGarbage
	statPending
	statNotes
	statCrossed
	statNaps
	statSections
	statPassedOver
	statGivenUp
	numStats
)

var statNames = [numStats]string{
	statConnected:  "connected",          // connections made
	statAccepted:   "accepted",           // connections that peers made
	statRefused:    "refused",            // connections of peers that were refused
	statFailed:     "failed",             // connections that ended with an error
	statGarbage:    "garbage",            // messages that were no messages
	statPending:    "pending",            // tokens that waited
	statNotes:      "notes",              // connection messages sent
	statCrossed:    "crossed",            // connections that both sides made at once
	statNaps:       "naps",               // connections proposed to be put to sleep
	statSections:   "sections",           // times the async goroutine connected in the worker's stead
	statPassedOver: "hellos_passed_over", // hellos without an answer, since too many connections are half-open
	statGivenUp:    "half_open_given_up", // half-open connections that made room for others
}
