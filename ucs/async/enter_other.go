//go:build !amd64 || race

package async

import "sync/atomic"

// plainInside: no; the worker orders its store and load by itself.
const plainInside = false

// stepIn counts the worker's word up by one, before any later load.
func stepIn(w *atomic.Uint64) { w.Add(1) }

// stepOut is the same, without order towards later loads. The word has one
// writer.
func stepOut(w *atomic.Uint64) { w.Store(w.Load() + 1) }
