package nic

import "unsafe"

// AddressOf returns the address of b's first byte as a number. It is never converted back to a
// pointer, and a registration keeps the memory in place.
//
// Rule (2) of package unsafe: conversion of a pointer to a uintptr, but not back.
func AddressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
