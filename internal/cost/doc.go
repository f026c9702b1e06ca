// Package cost measures what goucx takes while nothing happens: bytes of an
// endpoint that is not used and of a connected peer, time of an idle progress.
// Beside it stands that no operation allocates.
// It holds tests only: its gates log the figures that scripts/cost and make
// bench show.
package cost
