// Package machine is the state machine of one connection between two workers. It decides which
// side initiates the connection, which pair each side sends on and reads, and when the connection
// closes. The package is pure: Step takes an event and the time, and returns actions. It has no
// clock, no I/O and no goroutines. The transports execute the actions. The simulations in the
// tests run thousands of machines over a network that delays, loses and duplicates messages.
//
// A pair is an ordered path in both directions. In shared memory it is two rings, which one side
// creates and passes to the other. With Config.ThreeWay it is two queue pairs, one created by each
// side; threeway.go describes that handshake. A connection starts on one pair and may migrate: to a
// larger pair, to no pair while it is suspended, or to the peer's pair when both sides connected
// at once.
//
// Invariant: each direction keeps its order across a migration, and no message is left in the old
// pair. The sender writes a switch-over marker into the old pair ("what follows is in pair n") and
// continues in pair n. The receiver switches to pair n when it has read the marker. So neither
// direction waits for the other, and no message waits for an agreement. A side retires a pair when
// it neither sends on it nor reads it.
//
//	A                             B
//	OPEN, pair 1 -------------->  reads and sends in pair 1
//	reads pair 1  <-------------  ACCEPT
//	MIGRATE, pair 2 ----------->  marker in pair 1, sends in pair 2
//	marker in 1, sends in 2 <---  MIGRATE_ACK    (reads 2 after the marker in 1)
//	SUSPEND ------------------->  marker in 2, sends nowhere
//	marker in 2, sends nowhere <- SUSPEND_ACK    (both retire pair 2)
//	MIGRATE, pair 3 ----------->  ...            (from the side that has data first)
//
// When both sides send OPEN at once, the initiation of the worker with the smaller UUID wins. The
// losing side replies with an ACCEPT that names its own pair, writes a marker into that pair and
// switches to the winner's. The winner reads the loser's pair up to the marker and its own pair
// after it.
//
// With ThreeWay neither side sends on a pair before both queue pairs are connected. So the losing
// initiation is dropped without a marker, and the target of a MIGRATE switches after its
// initiator.
//
// With Config.Timeout set, connection messages may be lost, duplicated and reordered, and the
// machine retransmits them. Markers travel in the pairs, which keep order. ResetFor returns the
// reply to a message for an unknown connection.
//
// Start reading at the table in transition.go, and at the scenarios in testdata: each is a
// conversation of two machines with all messages and actions. Machine.Step applies the table.
package machine
