package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/internal/mapped"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/ring"
)

func TestCopyTableLayout(t *testing.T) {
	require.EqualValues(t, entrySize, unsafe.Sizeof(copyEntry{}))
	require.EqualValues(t, 64, unsafe.Offsetof(copyEntry{}.dst), "what the peer alone writes is on a line of its own")
	require.EqualValues(t, 40, unsafe.Offsetof(copyEntry{}.state))
	require.LessOrEqual(t, entriesOffset+numEntries*entrySize, copyTableSize)
}

// TestSidesHaveLinesOfTheirOwn: what different processes write in memory that both map is not in one cache line, in so far
// as they do not write it in turns. (Doorbell words of eight senders share a line: the owner scans them densely.)
func TestSidesHaveLinesOfTheirOwn(t *testing.T) {
	for cells := minCells; cells <= maxCells; cells *= 2 {
		require.Zero(t, ringStride(ring.Layout{Cells: cells, Bulk: minBulk + ring.CellSize})%ucs.CacheLine, "the two rings of a pair")
	}
	require.Zero(t, pageSize%ring.CellSize)
	require.GreaterOrEqual(t, doorbellsOffset, ring.CellSize, "the armed word, which the owner and its wakers write, and the doorbells")
	require.GreaterOrEqual(t, entriesOffset, ring.CellSize, "the word active, which the peer writes, and the entries")
	require.Zero(t, entriesOffset%ring.CellSize)
	require.Zero(t, entrySize%ring.CellSize, "two entries")
	require.Zero(t, mapped.SlotBytes%ring.CellSize, "two slots of a key table")
	// A thread that sends and one that receives, on one connection.
	var e ep
	require.GreaterOrEqual(t, unsafe.Offsetof(e.rx)-(unsafe.Offsetof(e.tx)+unsafe.Sizeof(e.tx)), uintptr(ring.CellSize))
}
