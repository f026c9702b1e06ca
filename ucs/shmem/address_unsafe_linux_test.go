package shmem

import (
	"sync/atomic"
	"unsafe"

	"github.com/goucx/goucx/internal/race"
)

// address is where b lies; b must be kept alive by the caller.
func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// storePlain stores without the fence that an atomic store has on amd64.
//
//go:noinline
func storePlain(w *atomic.Uint32, v uint32) {
	if race.Enabled {
		w.Store(v)
		return
	}
	*(*uint32)(unsafe.Pointer(w)) = v
}
