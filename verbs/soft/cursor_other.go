//go:build !amd64 || race

package soft

import "sync/atomic"

// storeRelease is a release store.
func storeRelease(w *atomic.Uint64, v uint64) { w.Store(v) }

// storeRelease32 is storeRelease for 32 bits.
func storeRelease32(w *atomic.Uint32, v uint32) { w.Store(v) }
