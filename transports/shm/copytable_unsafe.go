package shm

import (
	"sync/atomic"
	"unsafe"
)

// entryAt returns entry i of a copy table in b, which has copyTableSize bytes (rule 1 of package
// unsafe; mappings are page-aligned).
func entryAt(b []byte, i int) *copyEntry {
	_ = b[copyTableSize-1]
	return (*copyEntry)(unsafe.Pointer(unsafe.SliceData(b[entriesOffset+i*entrySize:])))
}

// addressOfBytes returns the address of b, which is not empty, as a number for the peer. It keeps nothing reachable.
func addressOfBytes(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// tableWord returns word i of a copy table (as entryAt).
func tableWord(b []byte, i int) *atomic.Uint64 {
	_ = b[copyTableSize-1]
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b[8*i : entriesOffset])))
}
