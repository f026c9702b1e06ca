package ring

import (
	"fmt"
	"math/bits"
)

const (
	// CellSize is the size of a cell in bytes: one cache line.
	CellSize = 64
	// InlineMax is the maximum payload in a cell, in bytes.
	InlineMax = 48

	// Offsets in the control block. These are in cache lines of their own: words that
	// the creator or the producer writes once or rarely, words that the consumer writes
	// per batch, and words that it writes rarely.
	offInfo      = 0
	offWaiting   = 64
	offCellTail  = 128
	offBulkTail  = 136
	offPolled    = 256
	controlBytes = 384

	magic = 0x676e72786375_0001 // "ucxrng", layout version 1

	maxCells = 1 << 16
	maxBulk  = 1 << 28
)

// Layout is a ring's geometry.
type Layout struct {
	// Cells is the number of cells: a power of two, 8 to 65536.
	Cells int
	// Bulk is the size of the bulk area in bytes: a multiple of 64, 1 KB to 256 MB.
	Bulk int
}

// Fit returns the layout with the given number of cells whose area has size bytes.
func Fit(size, cells int) Layout {
	return Layout{Cells: cells, Bulk: (size - controlBytes - cells*CellSize) &^ (CellSize - 1)}
}

// Size returns the size of a ring with this layout in bytes.
func (l Layout) Size() int { return controlBytes + l.Cells*CellSize + l.Bulk }

// MaxBulk returns the length of the longest message that always fits an empty ring. It
// fits wherever the previous message ended, and with as many bytes consumed but
// unpublished as the consumer allows.
func (l Layout) MaxBulk() int { return (l.Bulk - l.Bulk/8) / 2 &^ (CellSize - 1) }

// Check returns an error if the geometry is out of range.
func (l Layout) Check() error {
	if l.Cells < 8 || l.Cells > maxCells || bits.OnesCount(uint(l.Cells)) != 1 {
		return fmt.Errorf("ring of %d cells: want a power of two from 8 to %d", l.Cells, maxCells)
	}
	if l.Bulk < 1024 || l.Bulk > maxBulk || l.Bulk%CellSize != 0 {
		return fmt.Errorf("ring with %d bytes of bulk: want a multiple of %d from 1024 to %d", l.Bulk, CellSize, maxBulk)
	}
	return nil
}

// Init initializes a zeroed area. The creator calls it once, before the other side
// attaches.
func Init(area []byte, l Layout) error {
	if err := l.fits(area); err != nil {
		return err
	}
	atomicUint64At(area, offInfo).Store(magic)
	atomicUint64At(area, offInfo+8).Store(uint64(l.Cells)<<32 | uint64(l.Bulk))
	return nil
}

// fits returns an error if l is invalid or area is too small or misaligned.
func (l Layout) fits(area []byte) error {
	if err := l.Check(); err != nil {
		return err
	}
	if len(area) < l.Size() {
		return fmt.Errorf("ring area of %d bytes: layout takes %d", len(area), l.Size())
	}
	if !aligned(area) {
		return fmt.Errorf("ring area is not aligned to %d bytes", CellSize)
	}
	return nil
}

// checkInit returns an error unless Init has initialized area with l.
func (l Layout) checkInit(area []byte) error {
	if err := l.fits(area); err != nil {
		return err
	}
	if m := atomicUint64At(area, offInfo).Load(); m != magic {
		return fmt.Errorf("ring area begins with %#x, not a ring of this version", m)
	}
	if g := atomicUint64At(area, offInfo+8).Load(); g != uint64(l.Cells)<<32|uint64(l.Bulk) {
		return fmt.Errorf("ring area is laid out for %d cells and %d bytes, not %d and %d", g>>32, uint32(g), l.Cells, l.Bulk)
	}
	return nil
}
