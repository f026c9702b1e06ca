package mapped

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

func TestLayout(t *testing.T) {
	assert.EqualValues(t, recordBytes, unsafe.Sizeof(record{}))
	assert.EqualValues(t, SlotBytes, unsafe.Sizeof(Slot{}))
	assert.EqualValues(t, 0, unsafe.Offsetof(Slot{}.gen))
	assert.EqualValues(t, 8, unsafe.Offsetof(Slot{}.inUse))
	assert.LessOrEqual(t, unsafe.Sizeof(RMA{}), uintptr(16))
}
