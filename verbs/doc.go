// Package verbs is the verbs API: queue pairs, completion queues and registered
// memory, with the nouns and numbers of libibverbs. Package verbs/soft, the
// software RNIC that goucx carries with it, and verbs/ibv, RDMA hardware through
// libibverbs, provide it; verbs/verbstest holds both to the same behaviour.
//
//	Provider → Context → PD → QP, MR, SRQ, AH
//	           Context → CQ, CompChannel, TD
//
// # The data path
//
// Work requests and completions are flat structs without pointers: the memory
// that they name is registered, and its MR holds it. Posting takes a slice and
// answers how many were taken and the Status of the first that was not; polling
// fills a slice. Neither blocks nor allocates.
//
// # Concurrency
//
// Every object is safe from any goroutine, except what is made under a TD
// (thread domain): one goroutine at a time uses those, and no lock is taken.
//
// # Abilities
//
// What not every provider has is found by asking: DeviceAttr, or an interface of
// its own in optional.go (memory windows, new registration of a region,
// multicast, moderation). CQ.Resize and SRQ.Resize answer ucs.ErrUnsupported
// where a provider lacks them, and so does CreateQP for type UC. Queues whose
// work requests wait for others (managed queues) will be a device's ability too.
//
// # Errors
//
// The control path returns errors that wrap a sentinel of package ucs;
// ucs.ErrUnsupported is the one answer for what a provider does not have. What an
// operation ended with stands in its completion.
//
// Source: libibverbs/verbs.h of rdma-core; InfiniBand Architecture
// Specification vol. 1, chapters 9 to 11.
//
// Start reading at device.go and wr.go.
package verbs
