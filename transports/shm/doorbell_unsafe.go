package shm

import "unsafe"

// pageWords returns the words of page b, which has pageSize bytes (rule 1 of package
// unsafe; mappings are page-aligned).
func pageWords(b []byte) (armed *uint32, heads []uint64) {
	_ = b[pageSize-1]
	armed = (*uint32)(unsafe.Pointer(unsafe.SliceData(b)))
	heads = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b[doorbellsOffset:]))), slotsPerPage)
	return armed, heads
}
