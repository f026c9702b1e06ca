package perf

import (
	"sync/atomic"
	"unsafe"
)

// word64 gives the word of b at off, which must be aligned and within b. Rule 1
// of package unsafe: the memory holds eight bytes at that place.
func word64(b []byte, off int) *atomic.Uint64 {
	_ = b[off : off+8]
	return (*atomic.Uint64)(unsafe.Pointer(&b[off]))
}

// word32 is word64 for four bytes.
func word32(b []byte, off int) *atomic.Uint32 {
	_ = b[off : off+4]
	return (*atomic.Uint32)(unsafe.Pointer(&b[off]))
}

// addressOf is where b lies in this process, as peers name it. Rule 4: it is a
// number from here on; b is kept by its owner.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
