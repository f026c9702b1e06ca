// Package wireup holds what a worker knows about its peers and how it reaches
// them: the codec of worker addresses, the table that stores a million of them
// in little memory, and the choice of lanes.
//
// An address ([View], [Build], [Parse]) lists a worker's ifaces with their
// addresses and quantised estimates; docs/wire/address.md has the byte table. A
// [Table] interns addresses. [Choose] ranks the pairs of local iface and remote
// address by purpose, as a pure function; [Selection] carries out UCX_TLS and
// the UCX_*_DEVICES filters.
//
// Nothing here opens, sends or waits. Start reading at address.go and choose.go.
package wireup
