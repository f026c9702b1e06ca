// Package stats counts what happens, for whoever has to find out why something
// is slow or lost.
//
// An owner (a worker, an interface, an endpoint) enumerates its counters in a
// Set and counts with plain increments; any other goroutine may read a snapshot
// meanwhile. A Group collects the sets of one worker under prefixes, as text or
// JSON.
package stats
