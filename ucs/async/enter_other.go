//go:build !amd64 || race

package async

import "sync/atomic"

// plainInside is false: the worker orders its own store and load.
const plainInside = false

// stepIn increments the worker's counter when it enters, before any later load.
func stepIn(w *atomic.Uint64) { w.Add(1) }

// stepOut increments the worker's counter when it leaves, in no order to later loads. The
// counter has one writer.
func stepOut(w *atomic.Uint64) { w.Store(w.Load() + 1) }
