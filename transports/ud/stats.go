package ud

// Counters of an iface. None is on the path of a single message.
const (
	statConnected = iota
	statAccepted
	statRefused
	statFailed
	statLossACKs
	statTimeouts
	statAcks
	statDuplicates
	statOutOfOrder
	statOutOfWindow
	statUnknown
	statInvalid
	statNoResource
	statPending
	statUnposted
	statSections
	statConnectsDropped
	statHalfOpenEvicted
	numStats
)

var statNames = [numStats]string{
	statConnected:       "connected",            // flows opened to peers
	statAccepted:        "accepted",             // flows that peers opened
	statRefused:         "refused",              // Connects that were refused
	statFailed:          "failed",               // flows that failed, except because the peer closed
	statLossACKs:        "resent",               // ACKs that caused lost packets to be retransmitted
	statTimeouts:        "timeouts",             // retransmissions by time-out
	statAcks:            "acks",                 // ACKs in a packet of their own
	statDuplicates:      "duplicates",           // packets received more than once
	statOutOfOrder:      "early",                // packets received out of order
	statOutOfWindow:     "beyond",               // packets beyond the window, or out of order without memory to hold them
	statUnknown:         "unknown",              // packets of flows that do not exist here
	statInvalid:         "garbage",              // invalid packets
	statNoResource:      "no_room",              // sends that got NoResource
	statPending:         "pending",              // operations added to the pending queue
	statUnposted:        "unposted",             // packets that the queue pair did not accept
	statSections:        "sections",             // sections that the async goroutine ran
	statConnectsDropped: "connects_passed_over", // Connects ignored because too many flows are half-open
	statHalfOpenEvicted: "half_open_given_up",   // half-open flows removed to make room for others
}
