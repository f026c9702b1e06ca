package shm

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestCopyTableLayout(t *testing.T) {
	require.EqualValues(t, entrySize, unsafe.Sizeof(copyEntry{}))
	require.EqualValues(t, 64, unsafe.Offsetof(copyEntry{}.dst), "what the peer alone writes is on a line of its own")
	require.EqualValues(t, 40, unsafe.Offsetof(copyEntry{}.state))
	require.LessOrEqual(t, entriesOffset+numEntries*entrySize, copyTableSize)
}
