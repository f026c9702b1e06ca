package shm

// What an iface counts. None of it is on the path of a single message.
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
	statConnected:  "connected", // connections made
	statAccepted:   "accepted",  // connections that peers made
	statRefused:    "refused",   // connections refused, by either side
	statFailed:     "failed",    // connections whose peer died or broke the protocol
	statGarbage:    "garbage",   // of which for what it wrote
	statNoResource: "no_room",   // sends that found no room
	statPending:    "pending",   // tokens that waited for room
	statHinted:     "hints",     // messages announced in the peer's inbox
	statWoken:      "wakeups",   // sleeping peers woken
	statCrossed:    "crossed",   // connections that both sides made at once
	statMoved:      "moved",     // pairs of the peer's that a connection went on in
	statNaps:       "naps",      // connections proposed to be put to sleep
	statRescued:    "rescued",   // messages that only the periodic scan found
}
