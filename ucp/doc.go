// Package ucp is the layer that programs use. It offers tag-matched messages, active
// messages, one-sided memory access and atomics. It selects the transports that reach
// the peer.
//
//	Context → Worker → Endpoint → Request
//
// A [Context] holds the transports and registered memory. A [Worker] owns progress. An
// [Endpoint] is a path to one remote worker; it uses no resources before its first
// operation. A [Request] is one operation that may be in progress.
//
// # Requests
//
// Every operation returns a [Request], a value of 16 bytes. The zero Request is
// complete. A request that completed without an error uses no memory, so a program may
// drop a Request; [Worker.Flush] then reports a failure. A [RecvRequest] has a result.
// It must be waited for, or dropped with [RecvRequest.Drop]. The library owns a buffer
// until its request completes.
//
// # Progress
//
// A goroutine that waits progresses the worker: [Request.Wait], [Worker.Run] and
// [Worker.WaitUntil] drive their own worker, and sleep when it is idle. A worker that
// no goroutine drives makes no progress. With [ThreadMulti] one of the waiting
// goroutines drives the worker for all. Callbacks ([Request.Notify], [AMHandler],
// [EndpointConfig.OnFailure]) run in progress, outside of locks. They may post
// operations and close endpoints; they must not wait. docs/threads.md lists which
// goroutine may call what, docs/ordering.md what is ordered, docs/errors.md the errors.
//
// # Inside
//
// Requests in flight are slots of a slab without pointers (internal/request); the users' buffers
// are in a parallel slice. A lane (lane.go) is one uct.Endpoint, shared by all
// Endpoints to the same worker. iface.go has the callbacks of the transports,
// progress.go the loop that calls them, progress_owner.go the ownership of that loop.
// docs/wire/ucp.md describes the messages on the wire; wire.go has their ids,
// iface.go their receivers.
//
// Start reading at Endpoint.TagSend, Worker.TagRecv and Worker.Progress.
package ucp
