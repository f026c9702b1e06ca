package ucp

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucp/internal/request"
	"github.com/goucx/goucx/ucs/platform"
)

// What there are many of must stay small and free of pointers.
func TestGateSizes(t *testing.T) {
	for _, tc := range []struct {
		v   any
		max uintptr
	}{{request.Slot{}, 64}, {epSlot{}, 16}, {unexpected{}, 40}} {
		ty := reflect.TypeOf(tc.v)
		assert.LessOrEqual(t, ty.Size(), tc.max, ty.Name())
		for field := range ty.Fields() {
			k := field.Type.Kind()
			assert.NotContains(t, []reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.String}, k, field.Name)
		}
	}
	assert.LessOrEqual(t, reflect.TypeFor[Request]().Size(), uintptr(16))
	assert.LessOrEqual(t, reflect.TypeFor[Endpoint]().Size(), uintptr(16))
}

// UCX_RNDV_THRESH may differ for peers on the host and for others.
func TestRndvThreshByNode(t *testing.T) {
	p := newIdlePairOver(t, transports.All(), 8, "UCX_RNDV_THRESH=intra:1k,inter:2k")
	p.must(p.e.Flush())
	n := 0
	for _, l := range p.a.t.lanes {
		if l.refs > 0 {
			n++
			assert.EqualValues(t, 1024, l.maxEager)
		}
	}
	assert.Positive(t, n)
	assert.EqualValues(t, 1024, p.a.t.rndvThresh.of(platform.HostID()).Or(0))
	assert.EqualValues(t, 2048, p.a.t.rndvThresh.of([16]byte{1}).Or(0))
}
