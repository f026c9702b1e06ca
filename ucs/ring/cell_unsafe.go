package ring

import (
	"sync/atomic"
	"unsafe"
)

// Bits of a cell's first word.
const (
	idShift   = 32
	lenShift  = 40
	flagBulk  = 1 << 56
	seqMask   = 1<<32 - 1
	lenMask   = 0xff
	headerOff = 8
	payOff    = 16
	bulkOff   = 16
	bulkAdv   = 24
)

// Cell is one cache line of a ring. It is obtained from a Producer or Consumer,
// whose mask keeps it inside the area.
type Cell struct{ p unsafe.Pointer }

// cells is where a ring's cells begin.
type cells struct{ p unsafe.Pointer }

// at is cell number seq. The mask, a power of two less one that the layout check
// tied to the area, bounds the offset (rule 3 of package unsafe).
func (c cells) at(seq, mask uint64) Cell {
	return Cell{unsafe.Add(c.p, uintptr(seq&mask)*CellSize)}
}

// offset is the cell that begins at off, which the same mask has bounded.
func (c cells) offset(off uint64) Cell { return Cell{unsafe.Add(c.p, uintptr(off))} }

// First loads the cell's first word; pairs with Publish.
func (c Cell) First() uint64 { return atomic.LoadUint64((*uint64)(c.p)) }

// Header is the message's 8-byte header.
func (c Cell) Header() uint64 { return *(*uint64)(unsafe.Add(c.p, headerOff)) }

// SetHeader stores the message's header.
func (c Cell) SetHeader(v uint64) { *(*uint64)(unsafe.Add(c.p, headerOff)) = v }

// SetUint64 stores an 8-byte payload.
func (c Cell) SetUint64(v uint64) { *(*uint64)(unsafe.Add(c.p, payOff)) = v }

// SetPayload copies p, which is at most InlineMax bytes.
func (c Cell) SetPayload(p []byte) {
	if len(p) == 8 {
		*(*uint64)(unsafe.Add(c.p, payOff)) = *(*uint64)(unsafe.Pointer(unsafe.SliceData(p)))
		return
	}
	copy((*[InlineMax]byte)(unsafe.Add(c.p, payOff))[:], p)
}

// own takes the cell's line for this core by storing to its unused tail.
func (c Cell) own() { *(*uint64)(unsafe.Add(c.p, CellSize-8)) = 0 }

func (c Cell) setBulk(off, n, advance uint64) {
	*(*uint64)(unsafe.Add(c.p, bulkOff)) = off<<32 | n
	*(*uint64)(unsafe.Add(c.p, bulkAdv)) = advance
}

func (c Cell) bulk() (offLen, advance uint64) {
	return *(*uint64)(unsafe.Add(c.p, bulkOff)), *(*uint64)(unsafe.Add(c.p, bulkAdv))
}
