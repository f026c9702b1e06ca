// Package shm is the transport between workers of one host, in one process or
// several: messages through rings in memory that both map, put, get and atomics
// on the other's memory itself.
//
// A connection (ep) sends and reads in pairs of rings (pairs.go), each in one
// sealed memfd. Its maker passes the first to the peer through the peer's socket
// and may write at once; conn.go and accept.go hold that handshake, hear.go what
// is said later, service.go what sockets and processes bring up. What becomes of
// a connection that both made at once (accept.go), that grows (grow.go) or that
// sleeps (lull.go) is decided by wireup/machine; drive.go does what it says.
// order.go has a new connection read after a closed one. progress.go polls: hot
// connections' cells in each pass, the others through the head words of the iface's
// inbox, everything now and then. am.go sends, pending.go waits for room. Regions
// and keys of the domain are in md.go,
// region.go and the key*.go files; the accesses themselves in package mapped.
// docs/wire/shm.md has every byte that two processes share.
//
// What a peer writes is checked before use and fails that peer alone. A peer
// that stops or dies holds up nobody: no ring has more than one sender.
//
// Two things will join it: a mailbox line for ping-pong traffic beside the rings
// of a pair (room is left in their control blocks), and single copy for long
// messages (behind AMZcopy, which gathers into the ring for now).
package shm
