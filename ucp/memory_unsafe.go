package ucp

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

// addressOf is the address of p's first byte, 0 where p is empty. Rule (2) of
// package unsafe: a uintptr that is never turned back.
func addressOf(p []byte) uint64 {
	if len(p) == 0 {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
}

// load64 reads the eight bytes of p, little-endian, as one atomic load where
// they are aligned. Rule (1): eight bytes of p are a uint64.
func load64(p []byte) uint64 {
	p = p[:8] // no read: it would not be atomic
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

// hide gives p without the compiler's knowing, so that p may lie on a stack. It
// is sound where the callee has read p before it returns and keeps nothing of
// it, as every short operation of uct must. Rule (3): the address is one of p's
// own memory.
func hide(p []byte) []byte {
	a := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), len(p))
}
