package shm

// Counters of an iface. None of them is updated on the fast path of a message.
const (
	statConnected = iota
	statAccepted
	statRefused
	statFailed
	statGarbage
	statNoResource
	statPending
	statHinted
	statWoken
	statCrossed
	statMoved
	statNaps
	statRescued
	numStats
)

var statNames = [numStats]string{
	statConnected:  "connected", // connections initiated
	statAccepted:   "accepted",  // connections that peers initiated
	statRefused:    "refused",   // connections rejected, by either side
	statFailed:     "failed",    // connections whose peer died or broke the protocol
	statGarbage:    "garbage",   // invalid data in shared memory
	statNoResource: "no_room",   // sends refused for lack of room
	statPending:    "pending",   // operations queued for room
	statHinted:     "hints",     // doorbells written
	statWoken:      "wakeups",   // armed peers woken
	statCrossed:    "crossed",   // crossed connects
	statMoved:      "moved",     // migrations to a ring pair of the peer
	statNaps:       "naps",      // SUSPEND proposals for idle connections
	statRescued:    "rescued",   // messages that only the periodic scan found
}
