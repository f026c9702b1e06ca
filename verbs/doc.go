// Package verbs is the verbs API: queue pairs, completion queues and memory regions,
// with the names and numbers of libibverbs. Package verbs/soft, the software RNIC of
// goucx, is a provider. The other one, verbs/ibv, is RDMA hardware through libibverbs.
// Package verbs/verbstest checks that all providers behave alike.
//
//	Provider → Context → PD → QP, MR, SRQ, AH
//	           Context → CQ, CompChannel, TD
//
// # The data path
//
// Work requests and completions are flat structs without pointers. The memory they
// refer to is registered, and its MR keeps it alive. Posting takes a slice. It returns
// how many work requests were accepted, and the Status of the first that was not.
// Polling fills a slice. Neither blocks or allocates.
//
// # Concurrency
//
// Every object may be used by any goroutine, except those under a TD (thread domain):
// at most one goroutine at a time may use these, and they take no lock.
//
// # Capabilities
//
// Capabilities that not every provider has are reported by DeviceAttr, or are optional
// interfaces in optional.go: memory windows, reregistration, multicast, moderation.
// CQ.Resize and SRQ.Resize return ucs.ErrUnsupported if a provider lacks them, and so
// does CreateQP for type UC. The software RNIC has all of them. Managed queues, whose work
// requests wait for others, will be a capability of a device too.
//
// # Errors
//
// The control path returns errors that wrap a sentinel of package ucs. What a provider
// does not support always returns ucs.ErrUnsupported. The result of an operation is in
// its completion.
//
// Source: libibverbs/verbs.h of rdma-core; InfiniBand Architecture Specification vol.
// 1, chapters 9 to 11.
//
// Start reading at device.go and wr.go.
package verbs
