//go:build linux && cgo && ibverbs

package ibv

import (
	"runtime"
	"unsafe"
)

// addrOf returns the address of the first byte of b, which is not empty. It is valid as long as b
// is pinned and referred to.
func addrOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// pinned pins the memory of b. Memory that is not the runtime's needs no pin and has none.
func pinned(b []byte) *runtime.Pinner {
	p := new(runtime.Pinner)
	p.Pin(unsafe.SliceData(b))
	return p
}
