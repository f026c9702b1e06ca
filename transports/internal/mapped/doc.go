// Package mapped is one-sided memory for the transports that reach a peer's
// memory with loads and stores: put, get and atomics as plain copies and CPU
// atomics, done when the call returns.
//
// Used by transports/self and transports/shm. The pieces:
//
//   - RMA is embedded in an endpoint and carries the put, get and atomic part
//     of uct.Endpoint.
//   - Keys holds the records of the keys that a domain has unpacked. A record is
//     64 bytes outside the Go heap and a uct.RKey is its address, so that an
//     access costs one line of it and no look-up.
//   - Owner holds the regions that a domain lends to others, each with a slot of
//     a Table: a generation that every access compares, and a count of accesses
//     under way.
//   - PackedKey is what travels.
//
// Three kinds of memory stand behind a key. Direct memory is mapped here and
// stays mapped until the key is released, so an access is a comparison and a
// copy. Counted memory is memory of this program that Close hands back to its
// owner: each access is counted in the slot, so that Close can wait for it. Far
// memory is another process's and not mapped here: Far copies it.
//
// The order of checks is the same everywhere: the endpoint's gate, the range
// (InvalidParam), the flags and the generation (RemoteAccess). Nothing is
// touched before all have passed.
//
// Start reading at rma.go.
package mapped
