package ring

import "unsafe"

// area gives a zeroed, line-aligned heap area.
func area(n int) []byte {
	b := make([]byte, n+CellSize)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % CellSize)
	return b[off : off+n : off+n]
}
