package soft

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// TestCells: the short way touches one cache line of a cell, and cells lie at
// multiples of their size.
func TestCells(t *testing.T) {
	var c cell
	assert.Equal(t, uintptr(64), unsafe.Offsetof(c.small)+unsafe.Sizeof(c.small))
	assert.Equal(t, uintptr(256), unsafe.Sizeof(c))
}
