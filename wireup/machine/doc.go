// Package machine decides how two workers share one connection: who made it,
// which of its pairs each side sends on and reads, and when it ends. It is
// pure: events and time go in, actions come out; no clock, no input or output,
// no goroutine. Transports drive it; the simulation in its tests drives
// thousands of them over a network that delays, loses and repeats.
//
// A pair is a path in both directions that keeps order: two rings in shared
// memory, which one side makes and hands over; or, with Config.TwoStep, two queue
// pairs, of which each side makes its own (halves.go). A connection begins with one and may move to others:
// to a greater one, to none while it sleeps, to the other side's where both
// connected at once. Each direction moves by itself: the sender puts a marker
// into the old pair, "what follows is in pair n", and goes on in pair n; the
// reader goes there when it has read the marker. So order is exact, nothing is
// left behind, and no message waits for an agreement. A side retires a pair
// when neither its sending nor its reading is in it any more.
//
//	A                         B
//	hello, pair 1 ----------> reads and sends in pair 1
//	reads pair 1  <---------- accept
//	offer, pair 2 ----------> takes it: marker in pair 1, sends in pair 2
//	marker in 1, sends in 2 <- take          (reads 2 after the marker in 1)
//	nap ---------------------> marker in 2, sends nowhere
//	marker in 2, sends nowhere <- asleep     (pair 2 is retired by both)
//	offer, pair 3 ----------> ...            (whoever wants to send first)
//
// Where both said hello at once, the initiation of the worker with the smaller
// UUID stands: the other answers it with an accept that names its own, puts the
// marker there and moves; the first reads the other's pair up to that marker and
// its own pair after that.
//
// With TwoStep nothing is sent in a pair before the other half is ready, so a
// connection that gives way is simply dropped, and who takes an offer moves when the
// other side has.
//
// The connection messages may be lost, repeated and reordered where Config has a
// time-out; markers travel in the pairs, which keep order. Stray answers what comes
// for a connection that is not there.
//
// Start reading at Machine.Step.
package machine
