// Package cost measures the idle costs of goucx: the memory of an unused endpoint and of a
// connected peer, and the time of an idle progress call. It also checks that no operation
// allocates. It contains tests only. Their gates log the figures that make bench shows.
package cost
