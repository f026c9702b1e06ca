// Package stats provides event counters for diagnosis.
//
// A component (a worker, an interface, an endpoint) enumerates its counters in a Set and
// increments them with plain additions. Any other goroutine may read a snapshot at any
// time. A Group collects the sets of a worker under prefixes, and prints them as text or
// JSON.
package stats
