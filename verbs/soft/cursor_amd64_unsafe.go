//go:build amd64 && !race

package soft

import (
	"sync/atomic"
	"unsafe"
)

// storeRelease stores after all stores before it. A plain store is a release on
// amd64; atomic.Store would be an exchange that costs ten times as much.
//
// Rule (1) of package unsafe: an atomic.Uint64 is laid out as a uint64.
func storeRelease(w *atomic.Uint64, v uint64) { *(*uint64)(unsafe.Pointer(w)) = v }

// storeRelease32 is storeRelease of a shorter word.
func storeRelease32(w *atomic.Uint32, v uint32) { *(*uint32)(unsafe.Pointer(w)) = v }
