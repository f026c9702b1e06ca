// Package uct is the transport API: the interfaces that each transport implements and the layer
// above uses, as UCX's UCT.
//
//	Component → Domain → Iface → Endpoint
//
// A Component (self, shm, rc, ud) finds the devices that it can use and opens a Domain on one of
// them. A Domain is the scope of registered memory. An Iface is a communication interface of a
// worker on that domain. An Endpoint is a one-directional send handle to one remote Iface.
//
// # The call contract
//
// Every data-path call returns a Status at once and never blocks:
//
//   - OK: done; the caller owns the buffer again.
//   - InProgress: accepted. One Event with the caller's Token follows. The buffer stays in use
//     until then.
//   - NoResource: nothing happened. The caller queues a retry with PendingAdd.
//   - Any other Status: refused; nothing happened.
//
// A transport never queues a send without returning InProgress, and never calls back outside
// Progress. A send that returned OK reaches the peer without another call. Package uct/ucttest
// tests the whole contract on every transport.
//
// # Callbacks and reentrancy
//
// Iface.Progress makes all callbacks, on the calling goroutine. A callback may post operations and
// close endpoints; it must not call Progress. An Iface and its Endpoints are used by one goroutine
// at a time. A transport locks what an Iface shares with others.
//
// Start reading at Iface and Endpoint.
package uct
