//go:build amd64 && !race

package cpu

import (
	"sync/atomic"
	"unsafe"
)

// StoreRelease is a release store. On amd64 a plain store is one; atomic.Store would be
// an exchange, which waits for all earlier stores and costs ten times as much.
//
// Rule (1) of package unsafe: an atomic.Uint64 is laid out as a uint64.
func StoreRelease(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// StoreRelease32 is StoreRelease for 32 bits.
func StoreRelease32(w *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(w)) = v }
