// Package self is the loopback transport: it connects a worker with itself. Progress
// delivers the messages that the worker has sent.
//
// Each endpoint has a bounded queue of messages in ordinary memory. A send copies the
// message into the queue and returns OK, or NoResource if the queue is full. Progress
// passes the queue to the handler in batches, without a copy. Nothing is ever in flight,
// so no operation returns InProgress and there are no completion events. Put, get and
// atomics access memory directly (package transports/internal/mapped).
//
// Only the owner of the iface accesses it. The data path has no atomics and no locks.
//
// Start reading at am.go (the queue) and progress.go.
package self
