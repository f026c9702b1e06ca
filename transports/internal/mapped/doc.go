// Package mapped implements one-sided operations for the transports that reach a peer's memory
// with loads and stores. Puts, gets and atomics are plain copies and CPU atomics, complete when
// the call returns.
//
// transports/self and transports/shm use it. Its parts:
//
//   - RMA is embedded in an endpoint and has the put, get and atomic methods of uct.Endpoint.
//   - Keys holds the records of the keys that a domain has unpacked. A record is 64 bytes
//     outside the Go heap. A uct.RKey is its address, so an access costs one cache line and no
//     look-up.
//   - Owner holds the regions that a domain exposes to peers. Each has a slot of a Table: a
//     generation that every access compares, and a count of accesses in flight.
//   - PackedKey is the serialized form of a key.
//
// A key refers to one of three kinds of memory. Direct memory is mapped here and stays mapped
// until the key is released, so an access is a comparison and a copy. Counted memory belongs to
// this program and returns to it on Close: each access is counted in the slot, so that Close
// can wait for it. Memory of another process that is not mapped here is copied by a Copier.
//
// All operations check in the same order: the endpoint's gate, the range (InvalidParam), the
// flags and the generation (RemoteAccess). No memory is accessed before all checks have passed.
//
// Start reading at rma.go.
package mapped
