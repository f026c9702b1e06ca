//go:build !(amd64 || arm64) || race

package soft

import "sync/atomic"

// count is the variant for processors that may tear a store, and for the race detector.
func count(w *uint64, n uint64) { atomic.AddUint64(w, n) }
