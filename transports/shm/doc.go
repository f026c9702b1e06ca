// Package shm is the transport between workers on one host, in one process or in
// several. Messages pass through rings in memory that both sides map. Put, get and
// atomics access the peer's memory directly.
//
// A connection (ep) sends and receives through ring pairs (ringpair.go). Each ring pair
// lies in one sealed memfd. The initiator passes the first ring pair to the peer's
// socket and may send at once. The files are:
//
//   - connect.go and accept.go: the two sides of the connect handshake, and crossed connects
//   - conn.go: executes the actions of wireup/machine, and reads later messages on a
//     connection's socket; transports/internal/conn holds the life of a connection
//   - service.go: events of sockets and processes, and the end of connections
//   - ringpair.go: ring pairs, growth and migration
//   - order.go: message order across a closed connection and its successor
//   - progress.go: polls the cells of hot connections in each pass, the doorbell words
//     of the others in turn, and every ring periodically
//   - am.go and pending.go: sends, and the queue of operations that wait for room
//   - md.go, keyserver.go, keyclient.go and remote.go: regions and keys of the domain. Package
//     transports/internal/mapped accesses them.
//
// docs/wire/shm.md describes every byte that two processes share.
//
// The transport validates what a peer writes before use. Invalid data fails that peer
// only. A peer that stops or dies blocks no other peer: each ring has one sender.
//
// Planned: a single-line slot for ping-pong traffic beside the rings of a pair (the
// control blocks have room for it), and single copy for long messages. AMZcopy gathers
// into the ring until then.
package shm
