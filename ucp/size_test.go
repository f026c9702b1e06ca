package ucp

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/ucp/internal/request"
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
