// Package wireup encodes worker addresses, stores the addresses of peers, and selects lanes.
//
// An address ([View], [Build], [Parse]) lists a worker's ifaces with their addresses and quantized
// estimates; docs/wire/address.md has the byte table. A [Table] stores the addresses of a million
// peers in little memory. [Choose] is a pure function that ranks the pairs of local iface and
// remote address for each purpose. [Selection] applies UCX_TLS and the UCX_*_DEVICES filters.
//
// The package opens no iface, sends nothing and never blocks. Start reading at address.go and
// choose.go.
package wireup
