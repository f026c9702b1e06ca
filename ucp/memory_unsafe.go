package ucp

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// addressOf returns the address of p's first byte, 0 if p is empty. Rule (2) of package
// unsafe: the uintptr is never converted back to a pointer.
func addressOf(p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}

// addressOfList returns the address of rs, to compare it with another one. Rule (2) of package
// unsafe, as above.
func addressOfList(rs []AnyRequest) uint64 {
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(rs))))
}

// load64 reads the eight bytes of p as a little-endian integer, with one atomic load if
// they are aligned. Rule (1) of package unsafe: eight bytes of p are a uint64.
func load64(p []byte) uint64 {
	p = p[:8] // a bounds check only; a read here would not be atomic
	q := unsafe.Pointer(unsafe.SliceData(p))
	if uintptr(q)&7 != 0 {
		return binary.LittleEndian.Uint64(p)
	}
	v := atomic.LoadUint64((*uint64)(q))
	if littleEndian {
		return v
	}
	return binary.LittleEndian.Uint64(binary.NativeEndian.AppendUint64(nil, v))
}

var littleEndian = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// noescape returns p without the compiler's escape analysis noticing, so that p may be on a
// stack. It is sound if the callee reads p before it returns and keeps no reference to it.
// Every short operation of uct does so. Rule (3) of package unsafe: the address is one of
// p's own memory.
func noescape(p []byte) []byte {
	a := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), len(p))
}

// sameStart reports whether a and b begin at the same address.
func sameStart(a, b []byte) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }
