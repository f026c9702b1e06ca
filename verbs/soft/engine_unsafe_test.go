package soft

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/ucs"
)

// TestEngineLines: what the threads of two engines write is on lines of its own.
func TestEngineLines(t *testing.T) {
	var e engine
	assert.GreaterOrEqual(t, unsafe.Offsetof(e.rx), unsafe.Offsetof(e.polledUntil)+ucs.CacheLine)
	assert.GreaterOrEqual(t, unsafe.Sizeof(e), unsafe.Offsetof(e.nextTimer)+ucs.CacheLine)
	var d device
	assert.GreaterOrEqual(t, unsafe.Offsetof(d.own)+unsafe.Offsetof(e.rx), unsafe.Offsetof(d.engines)+ucs.CacheLine)
	var c cq // memory of this size class begins at a multiple of its size
	assert.Greater(t, unsafe.Sizeof(c), uintptr(480))
	assert.LessOrEqual(t, unsafe.Sizeof(c), uintptr(512))
	var q qp
	assert.GreaterOrEqual(t, unsafe.Offsetof(q.owner), unsafe.Offsetof(q.rq)+ucs.CacheLine)
}
