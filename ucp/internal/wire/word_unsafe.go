package wire

import "unsafe"

// CopyWord copies the 8 bytes of src from byte off on to dst. It panics if either is too short. It
// makes one check of each, where slices need five.
func CopyWord(dst, src []byte, off uint32) {
	if uint64(off)+8 > uint64(len(src)) || len(dst) < 8 {
		panic("wire: a word outside of its memory")
	}
	*(*[8]byte)(unsafe.Pointer(unsafe.SliceData(dst))) = *(*[8]byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(src)), off))
}

// Payload returns the n bytes of mem from byte off on. It panics if mem is too short.
func Payload(mem []byte, off, n uint32) []byte {
	if uint64(off)+uint64(n) > uint64(len(mem)) {
		panic("wire: a payload outside of its memory")
	}
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(mem)), off)), n)
}
