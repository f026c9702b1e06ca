package uct

import "github.com/goucx/goucx/ucs"

// Status is the result of every data-path call.
type Status = ucs.Status

// Token identifies an operation of the caller: by convention a slab index and its generation. The
// transport returns it unread. Zero: no completion requested.
type Token uint64

// Event is the completion of one operation that returned InProgress.
type Event struct {
	Token Token
	// Value is the fetched value of an atomic or scalar get; else 0.
	Value  uint64
	Status Status
}
