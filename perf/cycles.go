package perf

import "github.com/goucx/goucx/ucs"

// cycles reads the counter that stamps are taken from.
func cycles() uint64 { return uint64(ucs.Now()) }
