package ring

import (
	"sync/atomic"
	"unsafe"
)

// atomicUint64At returns the 8-byte word at off. The caller ensures alignment.
//
// Rule (1) of package unsafe: conversion of *T1 to *T2. The slice expression checks the
// bounds.
func atomicUint64At(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b[off : off+8])))
}

// uint32At returns the 4-byte word at off.
func uint32At(b []byte, off int) *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(b[off : off+4])))
}

func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%CellSize == 0 }

// cellsOf returns the address of b's first cell. The area was checked to hold all cells.
func cellsOf(b []byte) cells { return cells{unsafe.Pointer(unsafe.SliceData(b))} }

// cellOf returns the cell at b, which has the size of half a mailbox. Of its methods only those that
// access that much may be used.
func cellOf(b []byte) Cell { return Cell{unsafe.Pointer(unsafe.SliceData(b))} }

// storeLines stores a word into each cache line of b. The length is a multiple of CellSize.
func storeLines(b []byte) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	for i := 0; i+CellSize <= len(b); i += CellSize {
		*(*uint64)(unsafe.Add(p, i)) = 0
	}
}
