// Package transports lists the transports that goucx is built with: [All] gives
// one provider of each, the nearest first.
//
// The list is explicit, and handed to ucp by whoever opens a context: nothing
// registers itself, so a program that brings its own list links nothing else.
// A new transport is a package below this one and a line in All; see
// docs/adding-a-transport.md.
package transports
