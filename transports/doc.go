// Package transports lists the transports that goucx is built with: [All] returns one provider
// of each.
//
// The list is explicit, and is passed to ucp when a context is opened. No transport registers
// itself, so a program with a list of its own links no other transport. A new transport is a
// package below this one and an entry in All; see docs/adding-a-transport.md.
package transports
