//go:build !(amd64 || arm64) || race

package stats

import "sync/atomic"

// count adds n to *w atomically. It is for processors that may tear a 64-bit store, and for
// the race detector.
func count(w *uint64, n uint64) { atomic.AddUint64(w, n) }
