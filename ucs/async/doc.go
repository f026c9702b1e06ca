// Package async runs a worker's timers and descriptor events while its program computes.
//
// An Async is one goroutine per context. It sleeps until a timer expires or a descriptor is
// ready, and indefinitely if nothing is registered. A worker registers its timers and
// descriptors with its Owner. They are handled in one of two places. The first is the
// worker's Progress, which calls Owner.Poll for the timers and reads its descriptors itself.
// The second is a section: an async critical section, which the async goroutine runs when
// the worker has not polled for a whole period. Worker and section exclude each other
// without a locked instruction on the worker's side.
//
// # Exclusion
//
// Invariant: at most one of the worker and the async goroutine is inside an Owner.
//
// The worker has a counter, Owner.inside, which it increments when it enters and when it
// leaves. So an odd value means that the worker is inside, and a changed value means that
// it polls. The async goroutine has a gate word, Owner.gate. Each side stores its own word
// and then loads the other's. At least one of them therefore sees the other's store,
// provided that no side's load is reordered before its store.
//
// The processor may reorder the worker's store and load. The async goroutine prevents that
// with membarrier(PRIVATE_EXPEDITED) between its own store and load. The worker's store is
// sequentially consistent instead where membarrier is refused, on processors without total
// store order, and under the race detector.
//
// A section lasts at most 50 us and calls no user code. A worker that finds the async
// goroutine inside does not wait: Progress returns at once, and posts return NoResource.
// A worker may stay inside for long, because it was preempted or a callback is slow. The
// async goroutine then runs no section and checks again later.
//
// # Latency when the program does not poll
//
// If a processor is free for the goroutine, an expired timer or a ready descriptor is handled
// within two periods, which is 1 ms by default. With GOMAXPROCS=1 beside a computing goroutine,
// it is the time until Go's scheduler preempts that goroutine, about 20 ms.
//
// Start reading at Async, then Owner.
package async
