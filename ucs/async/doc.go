// Package async runs what a worker owes the world while its program computes:
// timers, events of descriptors, deaths of peers.
//
// One Async per context is one goroutine. It sleeps until something is due, and
// for good when nothing is registered. What belongs to a worker is registered
// with that worker's Owner, and runs in one of two places: in the worker's own
// Progress, which polls the Owner for its timers and looks at descriptors as it
// likes, or, when the worker has not polled for a whole period, in a section of the
// async goroutine. The two exclude each other
// without a locked instruction on the worker's side.
//
// # Exclusion
//
// The worker counts in one word of its own: up by one when it goes in, up by
// one when it comes out, so odd means inside and a moving word means polling.
// The async side has a gate word. Each stores its word first and then looks at
// the other's; the store and the load of the worker may pass each other in the
// processor, which membarrier(PRIVATE_EXPEDITED) on the async side, between its
// own store and load, forbids. Where membarrier is refused, on processors
// without total store order, and under the race detector, the worker's store is
// a sequentially consistent one instead.
//
// A section lasts at most 50 us and runs no code of the user's. A worker that
// finds the async side inside does not wait: its Progress returns at once, its
// posts answer "no resource". If the worker stands still inside (preempted, or
// in a long callback) the async side leaves it alone and looks again later.
//
// # What it costs when the program does not poll
//
// A due timer or event is served within two periods, 1 ms by default, if a
// processor is free for the goroutine; see Bound for the other case.
//
// Start reading at Async, then Owner.
package async
