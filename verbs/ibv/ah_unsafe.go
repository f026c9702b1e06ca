//go:build linux && cgo && ibverbs

package ibv

// #include "shim.h"
import "C"

import "unsafe"

// key identifies a domain in tables of C, which do not look into it.
func (p *pd) key() unsafe.Pointer { return unsafe.Pointer(p.c) }

// initAH is ibv_init_ah_from_wc. grh has at least grhLen bytes.
func initAH(c *C.struct_ibv_context, port uint8, w *C.struct_ibv_wc, grh []byte, a *C.struct_ibv_ah_attr) (C.int, error) {
	var area C.struct_ibv_grh
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&area)), unsafe.Sizeof(area)), grh[:grhLen])
	code, err := C.ibv_init_ah_from_wc(c, C.uint8_t(port), w, &area, a)
	return code, err
}
