// Package ucp is the layer that programs use: tag-matched messages, active
// messages, one-sided memory access and atomics over whichever transports reach
// the peer.
//
//	Context → Worker → Endpoint → Request
//
// A [Context] holds providers and memory, a [Worker] owns progress, an
// [Endpoint] is a path to one remote worker and costs nothing until it is used,
// a [Request] is one operation that may still be on its way.
//
// # Requests
//
// Every operation gives a [Request], a value of 16 bytes. The zero Request is
// done. One that ended well takes no memory any more, so dropping a Request is
// legal: [Worker.Flush] reports a failure. A [RecvRequest] has a result and must
// be waited for, or dropped with [RecvRequest.Drop]. Buffers belong to ucp until
// their request has ended.
//
// # Who progresses
//
// Whoever waits: [Request.Wait], [Worker.Run] and [Worker.WaitUntil] drive their
// own worker, and sleep when it is idle. Nothing happens in a worker that nobody
// drives. With [ThreadMulti] one of those who wait drives it for all. Callbacks
// ([Request.Notify], [AMHandler], [EndpointConfig.OnFailure]) run in progress,
// outside of locks; they may post operations and close endpoints, and must not
// wait. docs/threads.md says who may call what, docs/ordering.md what is ordered,
// docs/errors.md what errors mean.
//
// # Inside
//
// Requests in flight are slots of a slab without pointers (slot.go); the users'
// buffers lie beside it. A lane (lane.go) is one uct.Endpoint, shared by all
// Endpoints to the same worker. port.go has the callbacks of the transports,
// progress.go the loop that calls them, baton.go who runs it. The messages on the
// wire are described in docs/wire/ucp.md; wire.go has their ids, dispatch.go what
// takes them in.
//
// Start reading at Endpoint.TagSend, Worker.TagRecv and Worker.Progress.
package ucp
