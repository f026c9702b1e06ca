package soft

import "unsafe"

// addrOf is the address of b's first byte, as a number: nothing is ever reached
// through it, and Go moves no memory whose slice is held.
//
// Rule (2) of package unsafe: a pointer made uintptr, not back.
func addrOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
