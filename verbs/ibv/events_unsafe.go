//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import (
	"syscall"
	"unsafe"
)

// pointer is the address of an object of libibverbs, as a key of maps.
type pointer = unsafe.Pointer

// readAsync reads an event without blocking, and returns its object; nil: it has none.
func readAsync(c *C.struct_ibv_context, e *C.struct_ibv_async_event) (object pointer, no syscall.Errno) {
	no = syscall.Errno(C.goucx_next_async(c, e, &object))
	return object, no
}

// portOf returns the port of an event that has no object: the union of the event holds it.
func portOf(e *C.struct_ibv_async_event) int { return int(*(*C.int)(unsafe.Pointer(&e.element))) }

func (q *qp) pointer() pointer  { return unsafe.Pointer(q.c.qp) }
func (c *cq) pointer() pointer  { return unsafe.Pointer(c.c.cq) }
func (s *srq) pointer() pointer { return unsafe.Pointer(s.c.srq) }
