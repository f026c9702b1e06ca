package nic

import "unsafe"

// AddressOf is the address of b's first byte, as a number: nothing is reached
// through it, and a registration holds the memory in place.
//
// Rule (2) of package unsafe: a pointer made uintptr, not back.
func AddressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
