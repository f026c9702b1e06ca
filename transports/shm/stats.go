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
	statDoorbells
	statWoken
	statCrossed
	statMigrated
	statSuspends
	statRescued
	statMailbox
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
	statDoorbells:  "hints",     // doorbells written
	statWoken:      "wakeups",   // armed peers woken
	statCrossed:    "crossed",   // crossed connects
	statMigrated:   "moved",     // migrations to a ring pair of the peer
	statSuspends:   "naps",      // SUSPEND proposals for idle connections
	statRescued:    "rescued",   // messages that only the periodic scan found
	statMailbox:    "mailbox",   // times that a connection began to use its mailbox
}
