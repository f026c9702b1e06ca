//go:build !amd64 || race

package cpu

import "sync/atomic"

// StoreRelease is a release store.
func StoreRelease(w *atomic.Uint64, v uint64) { w.Store(v) }

// StoreRelease32 is StoreRelease for 32 bits.
func StoreRelease32(w *atomic.Uint32, v uint32) { w.Store(v) }
