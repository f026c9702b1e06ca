package perf

import (
	"sync/atomic"
	"unsafe"
)

// word64 returns the word of b at off, which must be aligned and within b. Rule 1 of package
// unsafe: the memory holds eight bytes at that address.
func word64(b []byte, off int) *atomic.Uint64 {
	_ = b[off : off+8]
	return (*atomic.Uint64)(unsafe.Pointer(&b[off]))
}

// word32 is word64 for four bytes.
func word32(b []byte, off int) *atomic.Uint32 {
	_ = b[off : off+4]
	return (*atomic.Uint32)(unsafe.Pointer(&b[off]))
}

// addressOf returns b's address in this process, as peers use it. Rule 4 of package unsafe: it is
// a number from here on; its owner keeps b alive.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
