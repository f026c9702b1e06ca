package ucp

import (
	"sync/atomic"
	"unsafe"

	"github.com/goucx/goucx/uct"
)

// wordAt gives the word that p begins with; false where it is not aligned. Rule
// (1): the bytes of p, as many as T has, are a T.
func wordAt[T uint32 | uint64](p []byte) (*T, bool) {
	var v T
	_ = p[unsafe.Sizeof(v)-1]
	q := unsafe.Pointer(unsafe.SliceData(p))
	return (*T)(q), uintptr(q)%unsafe.Sizeof(v) == 0
}

// copyWhole copies from to to, of the same length: eight bytes at aligned
// addresses whole. Rule (1), as for wordAt.
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

// atomic64 carries out op on w by the processor and gives the value before.
func atomic64(w *uint64, op uct.AtomicOp, v, cmp uint64) uint64 {
	switch op {
	case uct.AtomicAdd:
		return atomic.AddUint64(w, v) - v
	case uct.AtomicAnd:
		return atomic.AndUint64(w, v)
	case uct.AtomicOr:
		return atomic.OrUint64(w, v)
	case uct.AtomicSwap:
		return atomic.SwapUint64(w, v)
	case uct.AtomicXor, uct.AtomicCompareSwap: // as follows
	}
	for {
		old := atomic.LoadUint64(w)
		next := v
		if op == uct.AtomicXor {
			next ^= old
		} else if old != cmp {
			return old
		}
		if atomic.CompareAndSwapUint64(w, old, next) {
			return old
		}
	}
}

// atomic32 is atomic64 of 32 bits.
func atomic32(w *uint32, op uct.AtomicOp, v, cmp uint32) uint32 {
	switch op {
	case uct.AtomicAdd:
		return atomic.AddUint32(w, v) - v
	case uct.AtomicAnd:
		return atomic.AndUint32(w, v)
	case uct.AtomicOr:
		return atomic.OrUint32(w, v)
	case uct.AtomicSwap:
		return atomic.SwapUint32(w, v)
	case uct.AtomicXor, uct.AtomicCompareSwap: // as follows
	}
	for {
		old := atomic.LoadUint32(w)
		next := v
		if op == uct.AtomicXor {
			next ^= old
		} else if old != cmp {
			return old
		}
		if atomic.CompareAndSwapUint32(w, old, next) {
			return old
		}
	}
}
