//go:build !amd64 || race

package soft

import "sync/atomic"

// storeRelease stores after all stores before it.
func storeRelease(w *atomic.Uint64, v uint64) { w.Store(v) }
