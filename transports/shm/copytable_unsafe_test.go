package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestCopyTableLayout(t *testing.T) {
	require.EqualValues(t, entrySize, unsafe.Sizeof(copyEntry{}))
	require.EqualValues(t, 64, unsafe.Offsetof(copyEntry{}.state), "what both write is on a line of its own")
	require.LessOrEqual(t, entriesOffset+numEntries*entrySize, copyTableSize)
}
