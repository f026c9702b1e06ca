//go:build !amd64 || race

package soft

import "sync/atomic"

// storeRelease stores after all stores before it.
func storeRelease(w *atomic.Uint64, v uint64) { w.Store(v) }

// storeRelease32 is storeRelease of a shorter word.
func storeRelease32(w *atomic.Uint32, v uint32) { w.Store(v) }
