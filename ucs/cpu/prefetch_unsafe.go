package cpu

import "unsafe"

// Prefetch requests the cache lines of b, 64 bytes each, so that a later read does not wait
// for them. It reads nothing and does not wait. One call costs about as much as three plain
// ones, so request several lines at once.
func Prefetch(b []byte) {
	prefetch(uintptr(unsafe.Pointer(unsafe.SliceData(b))), (len(b)+63)/64)
}

// Demote moves the cache lines of b, 64 bytes each, from this core's own caches to the one that cores share, so
// that another core reads them sooner. It is a hint (CLDEMOTE), which older processors ignore.
func Demote(b []byte) {
	demote(uintptr(unsafe.Pointer(unsafe.SliceData(b))), (len(b)+63)/64)
}
