//go:build amd64 && !race

package soft

import (
	"sync/atomic"
	"unsafe"
)

// storeRelease is a release store. On amd64 a plain store is one; atomic.Store would be
// an exchange, which costs ten times as much.
//
// Rule (1) of package unsafe: an atomic.Uint64 is laid out as a uint64.
func storeRelease(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// storeRelease32 is storeRelease for 32 bits.
func storeRelease32(w *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(w)) = v }
