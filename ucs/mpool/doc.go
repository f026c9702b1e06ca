// Package mpool keeps objects in slabs and names them by index: a 32-bit number
// instead of a pointer. Slots of a type without pointers cost the garbage
// collector nothing, neither a write barrier when they change hands nor a scan
// when it marks.
//
// Used for whatever the data path takes and gives back per operation: requests,
// tokens, descriptors. Start reading at Slab.
package mpool
