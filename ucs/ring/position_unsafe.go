package ring

import (
	"sync/atomic"
	"unsafe"
)

// Position is the place of the next message in the cells of a ring. A loop over a batch holds one in
// registers, advances it by Next, and ends with Consumer.Seek. It calls no other method of the
// Consumer meanwhile.
//
// Its methods access the cells directly, since each inlined call within them would leave an
// instruction behind. Advance and the layout check keep at in the area (rule 3 of package unsafe).
type Position struct {
	cells  cells
	at     uint64 // byte offset of the next cell
	want   uint64 // sequence number of the next message
	atMask uint64 // size of all cells in bytes, minus one
}

// AlwaysReady returns a Position whose Ready returns true. It has no message.
func AlwaysReady() *Position { return &Position{cells: cells{unsafe.Pointer(new(uint64))}} }

// Ready reports whether the message has arrived. Cost: one load of shared memory.
func (p Position) Ready() bool {
	return uint32(atomic.LoadUint64((*uint64)(unsafe.Add(p.cells.p, uintptr(p.at))))) == uint32(p.want)
}

// Poll returns the first word of the cell, and whether its message has arrived.
func (p Position) Poll() (first uint64, more bool) {
	first = atomic.LoadUint64((*uint64)(unsafe.Add(p.cells.p, uintptr(p.at))))
	return first, uint32(first) == uint32(p.want)
}

// Header returns the header of the message that Poll found.
func (p Position) Header() uint64 {
	return *(*uint64)(unsafe.Add(p.cells.p, uintptr(p.at)+headerOff))
}

// Inline returns offset and length of a payload in the cell. ok is false if the payload
// is not in the cell: see Consumer.Bulk.
func (p Position) Inline(first uint64) (off, n uint32, ok bool) {
	n = uint32(first >> lenShift) // length and flags: any flag makes it exceed InlineMax
	return uint32(p.at) + payOff, n, n <= InlineMax
}

// Short returns header, offset and length of the message that Poll found, and the position behind it.
// The payload is in the cell if n is at most InlineMax, otherwise see Consumer.Bulk.
func (p Position) Short(first uint64) (header uint64, off, n uint32, next Position) {
	next = Position{p.cells, (p.at + CellSize) & p.atMask, p.want + 1, p.atMask}
	return *(*uint64)(unsafe.Add(p.cells.p, uintptr(p.at)+headerOff)), uint32(p.at) + payOff, uint32(first >> lenShift), next
}

// Next returns the position behind the message.
func (p Position) Next() Position {
	p.at, p.want = (p.at+CellSize)&p.atMask, p.want+1
	return p
}
