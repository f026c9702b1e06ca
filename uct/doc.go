// Package uct is the transport API: one thin, capability-driven face that
// every transport shows to the layer above.
//
//	Component → Domain → Iface → Endpoint
//
// A Component (self, shm, rc, ud) finds the devices it can use and opens a
// Domain on one: the scope of registered memory. An Iface is one communication
// interface of a worker on that domain; an Endpoint is a one-directional send
// handle to one remote Iface.
//
// # The call contract
//
// Every data-path call answers at once with a Status and never blocks:
//
//   - OK: done; the buffer is the caller's again.
//   - InProgress: accepted; an Event with the caller's Token comes, once. The
//     buffer stays in use until then.
//   - NoResource: nothing happened. PendingAdd says when to try again.
//   - anything else: refused, nothing happened.
//
// A transport never queues a send silently and never calls back outside
// Progress. A send that answered OK reaches the peer without another call. The
// whole contract is held by package uct/ucttest, which runs on every transport.
//
// # Callbacks and reentrancy
//
// All callbacks come from Iface.Progress, on the goroutine that called it.
// They may post operations and close endpoints; they must not call Progress.
// One goroutine at a time uses an Iface and its Endpoints; with LockShared the
// transport guards what it shares with other Ifaces of the same resources.
//
// Start reading at Iface and Endpoint.
package uct
