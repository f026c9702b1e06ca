package main

import (
	"sync/atomic"
	"unsafe"
)

// byteAt returns byte i of b, which the device may write at the same time. len(b) must be a
// multiple of 8 and b aligned to 8 bytes. Rule 1 of package unsafe: the memory holds eight bytes
// at that address.
//
// It pairs with the device's store of the last bytes of a WRITE: what is before byte i of the
// same message is visible.
func byteAt(b []byte, i int) byte {
	word := i &^ 7
	_ = b[word : word+8]
	v := atomic.LoadUint64((*uint64)(unsafe.Pointer(&b[word])))
	return (*[8]byte)(unsafe.Pointer(&v))[i&7]
}
