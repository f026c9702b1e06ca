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

// A slot keeps nothing of the state of the operation that it held before.
func TestSlotsBeginAnew(t *testing.T) {
	var slab request.Table
	i := slab.Alloc(request.TagRecv)
	request.As[recvOp](&slab.Slots[i]).recv = recvAwaitsKey
	slab.Recycle(i)
	assert.Equal(t, i, slab.Alloc(request.TagRecv))
	assert.Equal(t, recvPosted, request.As[recvOp](&slab.Slots[i]).recv)
	request.As[sendOp](&slab.Slots[i]).phase = phaseExposed
	slab.Recycle(i)
	assert.Equal(t, i, slab.Alloc(request.TagSend))
	assert.Equal(t, phaseNew, request.As[sendOp](&slab.Slots[i]).phase)
}

// viewSlots is no constant, so that BenchmarkView has its slots on the heap.
var viewSlots = 256

// BenchmarkView compares the fields of a view over a slot with those of a struct: a view
// costs nothing.
func BenchmarkView(b *testing.B) {
	b.Run("view", func(b *testing.B) {
		slots := make([]request.Slot, viewSlots)
		for i := range b.N {
			s := request.As[sendOp](&slots[i%256])
			s.off += s.length
			s.length++
			s.phase = phaseMatch
		}
	})
	b.Run("struct", func(b *testing.B) {
		ops := make([]sendOp, viewSlots)
		for i := range b.N {
			s := &ops[i%256]
			s.off += s.length
			s.length++
			s.phase = phaseMatch
		}
	})
}
