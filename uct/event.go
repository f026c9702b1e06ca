package uct

import "github.com/goucx/goucx/ucs"

// Status is the answer of every data-path call.
type Status = ucs.Status

// Token names an operation of the caller: by convention a slab index and its
// generation. The transport hands it back unread. Zero: no completion wanted.
type Token uint64

// Event is the end of one operation that answered InProgress.
type Event struct {
	Token Token
	// Value is what an atomic or scalar get fetched; else 0.
	Value  uint64
	Status Status
}
