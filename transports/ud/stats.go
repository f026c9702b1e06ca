package ud

// What an iface counts. None of it is on the path of a single message.
const (
	statConnected = iota
	statAccepted
	statRefused
	statFailed
	statAgain
	statTimeouts
	statAcks
	statDuplicates
	statEarly
	statBeyond
	statUnknown
	statGarbage
	statNoResource
	statPending
	statDropped
	statSections
	statPassedOver
	statGivenUp
	numStats
)

var statNames = [numStats]string{
	statConnected:  "connected",            // flows opened to peers
	statAccepted:   "accepted",             // flows that peers opened
	statRefused:    "refused",              // of which not taken
	statFailed:     "failed",               // flows whose peer fell silent or gave them up
	statAgain:      "resent",               // packets sent again that were lost
	statTimeouts:   "timeouts",             // questions because nothing came back
	statAcks:       "acks",                 // acknowledgements that travelled alone
	statDuplicates: "duplicates",           // packets that came before
	statEarly:      "early",                // packets that waited for an earlier one
	statBeyond:     "beyond",               // packets that nobody was told would be taken
	statUnknown:    "unknown",              // packets of flows that are not here
	statGarbage:    "garbage",              // packets that are none of ours
	statNoResource: "no_room",              // sends that found no room
	statPending:    "pending",              // tokens that waited for room
	statDropped:    "unposted",             // packets that the queue pair did not take
	statSections:   "sections",             // times the async goroutine acted
	statPassedOver: "connects_passed_over", // connects without an answer, since too many flows are half-open
	statGivenUp:    "half_open_given_up",   // half-open flows that made room for others
}
