package ucp

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/goucx/goucx/ucp/internal/request"
)

// Each view has the size and alignment of a slot, begins with its header and holds no pointer.
// The fields that several views share are at the same place in each.
func TestViews(t *testing.T) {
	want := reflect.TypeFor[request.Slot]()
	for _, v := range []any{
		sendOp{}, recvOp{}, matchedOp{}, readOp{}, controlOp{}, flushOp{}, fenceOp{}, rmaOp{}, wordOp{}, refusedOp{},
	} {
		got := reflect.TypeOf(v)
		assert.Equal(t, want.Size(), got.Size(), got.Name())
		assert.LessOrEqual(t, got.Align(), want.Align(), got.Name())
		assert.Equal(t, reflect.TypeFor[request.Header](), got.Field(0).Type, got.Name())
		for f := range got.Fields() {
			assert.NotContains(t, []reflect.Kind{reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface, reflect.String}, f.Type.Kind(), f.Name)
		}
	}
	at := func(v any, field string) uintptr {
		f, ok := reflect.TypeOf(v).FieldByName(field)
		assert.True(t, ok, field)
		return f.Offset
	}
	mode := at(request.Slot{}, "Mode")
	for _, o := range []uintptr{
		at(sendOp{}, "phase"), at(recvOp{}, "recv"), at(flushOp{}, "stage"), at(fenceOp{}, "synced"), at(rmaOp{}, "form"), at(wordOp{}, "form"), at(refusedOp{}, "form"),
	} {
		assert.Equal(t, mode, o, "alloc clears it")
	}
	assert.Equal(t, at(recvOp{}, "tag"), at(wordOp{}, "key"), "a value is consumed as a tag")
	assert.Equal(t, at(rmaOp{}, "key"), at(wordOp{}, "key"))
	assert.Equal(t, at(rmaOp{}, "addr"), at(wordOp{}, "addr"))
	assert.Equal(t, at(flushOp{}, "parent"), at(fenceOp{}, "parent"))
}
