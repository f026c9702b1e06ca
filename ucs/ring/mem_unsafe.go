package ring

import (
	"sync/atomic"
	"unsafe"
)

// word is the 8-byte word at off, which is in range and aligned.
//
// Rule (1) of package unsafe: conversion of *T1 to *T2, bounds-checked by the
// slice expression.
func word(b []byte, off int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(unsafe.SliceData(b[off : off+8])))
}

// flag is the 4-byte word at off.
func flag(b []byte, off int) *uint32 {
	return (*uint32)(unsafe.Pointer(unsafe.SliceData(b[off : off+4])))
}

func aligned(b []byte) bool { return uintptr(unsafe.Pointer(unsafe.SliceData(b)))%CellSize == 0 }

// cellsOf is where b's cells begin; the area was checked to hold them.
func cellsOf(b []byte) cells { return cells{unsafe.Pointer(unsafe.SliceData(b))} }

// plain is the 8-byte word at off for sync/atomic functions and release stores.
func plain(b []byte, off int) *uint64 {
	return (*uint64)(unsafe.Pointer(unsafe.SliceData(b[off : off+8])))
}

// touch stores one word into each cache line of b, a multiple of CellSize.
func touch(b []byte) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	for i := 0; i+CellSize <= len(b); i += CellSize {
		*(*uint64)(unsafe.Add(p, i)) = 0
	}
}
