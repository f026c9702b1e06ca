package ucp

import (
	"sync/atomic"
	"unsafe"
)

// wordAt returns the word at the start of p, and whether it is aligned. Rule (1) of package
// unsafe: the first bytes of p, as many as T has, are a T.
func wordAt[T uint32 | uint64](p []byte) (*T, bool) {
	var v T
	_ = p[unsafe.Sizeof(v)-1]
	q := unsafe.Pointer(unsafe.SliceData(p))
	return (*T)(q), uintptr(q)%unsafe.Sizeof(v) == 0
}

// copyWhole copies from to to, which has the same length. It accesses eight aligned bytes
// atomically. Rule (1) of package unsafe, as for wordAt.
func copyWhole(to, from []byte) {
	if len(to) == 8 && len(from) == 8 {
		src, a := wordAt[uint64](from)
		dst, b := wordAt[uint64](to)
		switch {
		case a && b:
			atomic.StoreUint64(dst, atomic.LoadUint64(src))
			return
		case a:
			v := atomic.LoadUint64(src)
			copy(to, (*[8]byte)(unsafe.Pointer(&v))[:])
			return
		case b:
			var v uint64
			copy((*[8]byte)(unsafe.Pointer(&v))[:], from)
			atomic.StoreUint64(dst, v)
			return
		}
	}
	copy(to, from)
}
