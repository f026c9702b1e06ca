//go:build !amd64

package cpu

import "github.com/goucx/goucx/ucs"

// Cycles returns nanoseconds on processors whose cycle counter goucx does not read.
func Cycles() uint64 { return uint64(ucs.Now()) }

// Pause does nothing.
func Pause() {}

// prefetch does nothing.
func prefetch(uintptr, int) {}

// demote does nothing.
func demote(uintptr, int) {}
