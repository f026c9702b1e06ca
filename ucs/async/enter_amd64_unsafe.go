//go:build amd64 && !race

package async

import (
	"sync/atomic"
	"unsafe"
)

// plainInside: the worker's store is a plain one, and the async side makes up
// for it with membarrier.
const plainInside = true

// stepIn counts the worker's word up by one. On amd64 a plain store is a release
// store; what it lacks against an atomic one (XCHG, 5 to 9 ns) is that a later
// load may pass it. The word has one writer. The conversion follows rule 1 of
// package unsafe: the two types have the same layout.
func stepIn(w *atomic.Uint64) { *(*uint64)(unsafe.Pointer(w))++ }

// stepOut is the same; no load after it matters.
func stepOut(w *atomic.Uint64) { *(*uint64)(unsafe.Pointer(w))++ }
