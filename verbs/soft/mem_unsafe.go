package soft

import "unsafe"

// addrOf returns the address of b's first byte as a number. The device never accesses
// memory through it. Go does not move the memory of a slice that is held.
//
// Rule (2) of package unsafe: a pointer made uintptr, not back.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
