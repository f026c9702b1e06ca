//go:build !amd64

package cpu

import "github.com/goucx/goucx/ucs"

// Cycles counts nanoseconds where there is no cycle counter that goucx reads;
// see the amd64 file.
func Cycles() uint64 { return uint64(ucs.Now()) }

// Pause does nothing.
func Pause() {}

// prefetch does nothing.
func prefetch(uintptr, int) {}
