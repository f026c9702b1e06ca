package shm

import "unsafe"

// inboxWords returns the words of page b, which has inboxSize bytes (rule 1 of package
// unsafe; mappings are page-aligned).
func inboxWords(b []byte) (armed *uint32, heads []uint64) {
	_ = b[inboxSize-1]
	armed = (*uint32)(unsafe.Pointer(unsafe.SliceData(b)))
	heads = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b[inboxHeads:]))), inboxSlots)
	return armed, heads
}
