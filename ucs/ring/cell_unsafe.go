package ring

import (
	"sync/atomic"
	"unsafe"

	"github.com/goucx/goucx/ucs/cpu"
)

// Bit positions in a cell's first word, and offsets of the other words in the cell.
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

// Cell is one cache line of a ring. A Producer or Consumer returns it and ensures that
// it lies in the area.
type Cell struct{ p unsafe.Pointer }

// cells is the address of a ring's first cell.
type cells struct{ p unsafe.Pointer }

// at returns the cell of sequence number seq. mask is a power of two minus one; the
// layout check ensures that masked offsets lie in the area (rule 3 of package unsafe).
func (c cells) at(seq, mask uint64) Cell {
	return Cell{unsafe.Add(c.p, uintptr(seq&mask)*CellSize)}
}

// touch stores to n cells from sequence number seq, all free and none behind the last one of the ring. It leaves their first
// words, which the consumer polls.
func (c cells) touch(seq, n, mask uint64) {
	p := unsafe.Add(c.p, uintptr(seq&mask)*CellSize+CellSize-8)
	for i := range uintptr(n) {
		*(*uint64)(unsafe.Add(p, i*CellSize)) = 0
	}
}

// touchBatch is touch of batchCells cells.
func (c cells) touchBatch(seq, mask uint64) {
	a := (*[batchCells][CellSize / 8]uint64)(unsafe.Add(c.p, uintptr(seq&mask)*CellSize))
	a[0][7], a[1][7], a[2][7], a[3][7], a[4][7], a[5][7], a[6][7], a[7][7] = 0, 0, 0, 0, 0, 0, 0, 0
}

// offset returns the cell at byte offset off, which the caller has masked.
func (c cells) offset(off uint64) Cell { return Cell{unsafe.Add(c.p, uintptr(off))} }

// First loads the cell's first word with acquire order. It pairs with Publish.
func (c Cell) First() uint64 { return atomic.LoadUint64((*uint64)(c.p)) }

// Publish stores the cell's first word with release order: after all earlier stores. It pairs with First.
func (c Cell) Publish(first uint64) { cpu.StoreRelease((*atomic.Uint64)(c.p), first) }

// PutWord writes and publishes a message of eight bytes in the next cell. The caller ensures Room. It accesses the cell
// directly, since each inlined call within it would leave an instruction behind.
func (p *Producer) PutWord(id uint8, header, v uint64) {
	head := p.head
	c := unsafe.Add(p.cells.p, uintptr(head&p.mask)*CellSize)
	*(*uint64)(unsafe.Add(c, headerOff)) = header
	*(*uint64)(unsafe.Add(c, payOff)) = v
	cpu.StoreRelease((*atomic.Uint64)(c), uint64(uint32(head))|uint64(id)<<idShift|8<<lenShift)
	p.head = head + 1
}

// Header returns the message's 8-byte header.
func (c Cell) Header() uint64 { return *(*uint64)(unsafe.Add(c.p, headerOff)) }

// SetHeader stores the message's header.
func (c Cell) SetHeader(v uint64) { *(*uint64)(unsafe.Add(c.p, headerOff)) = v }

// SetPayload stores p, which has at most InlineMax bytes.
func (c Cell) SetPayload(p []byte) {
	if len(p) == 8 {
		*(*uint64)(unsafe.Add(c.p, payOff)) = *(*uint64)(unsafe.Pointer(unsafe.SliceData(p)))
		return
	}
	copy((*[InlineMax]byte)(unsafe.Add(c.p, payOff))[:], p)
}

// copyMail copies the payload of a mailbox to b.
func (c Cell) copyMail(b *[MailMax]byte) { *b = *(*[MailMax]byte)(unsafe.Add(c.p, payOff)) }

func (c Cell) setBulk(off, n, advance uint64) {
	*(*uint64)(unsafe.Add(c.p, bulkOff)) = off<<32 | n
	*(*uint64)(unsafe.Add(c.p, bulkAdv)) = advance
}

func (c Cell) bulk() (offLen, advance uint64) {
	return *(*uint64)(unsafe.Add(c.p, bulkOff)), *(*uint64)(unsafe.Add(c.p, bulkAdv))
}
