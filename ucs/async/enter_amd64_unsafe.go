//go:build amd64 && !race

package async

import (
	"sync/atomic"
	"unsafe"
)

// plainInside reports whether the worker's store to Owner.inside is a plain one. The async
// goroutine then orders it with membarrier.
const plainInside = true

// stepIn increments the worker's counter when it enters. On amd64 a plain store has release
// order. Unlike an atomic store (XCHG, 5 to 9 ns), it may be reordered after a later load.
// The counter has one writer. The conversion follows rule 1 of package unsafe: the two types
// have the same layout.
func stepIn(w *atomic.Uint64) { *(*uint64)(unsafe.Pointer(w))++ }

// stepOut increments the worker's counter when it leaves. Its order to later loads does not
// matter.
func stepOut(w *atomic.Uint64) { *(*uint64)(unsafe.Pointer(w))++ }
