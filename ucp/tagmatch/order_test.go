package tagmatch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const exact = ^uint64(0)

// The oldest receive that takes a message wins, exact or not.
func TestPostedOrder(t *testing.T) {
	for _, tc := range []struct {
		name string
		post []entry
		send []uint64
		want []uint32
	}{
		{"exact before wildcard", []entry{{1, 5, exact}, {2, 0, 0}}, []uint64{5, 5}, []uint32{1, 2}},
		{"wildcard before exact", []entry{{1, 0, 0}, {2, 5, exact}}, []uint64{5, 5}, []uint32{1, 2}},
		{"wildcard that does not take it", []entry{{1, 4, exact - 1}, {2, 7, exact}}, []uint64{7, 5}, []uint32{2, 1}},
		{"same tag in order", []entry{{3, 5, exact}, {1, 5, exact}, {2, 5, exact}}, []uint64{5, 5, 5}, []uint32{3, 1, 2}},
		{"wildcard between exact ones", []entry{{1, 5, exact}, {2, 0, 0}, {3, 5, exact}}, []uint64{5, 5, 5}, []uint32{1, 2, 3}},
		{"nothing fits", []entry{{1, 5, exact}}, []uint64{6}, []uint32{0}},
		{"mask takes parts of the tag", []entry{{1, 0xAB00, 0xFF00}}, []uint64{0xAA00, 0xAB42}, []uint32{0, 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Posted
			for _, e := range tc.post {
				p.Add(e.id, e.tag, e.mask)
			}
			for i, tag := range tc.send {
				assert.Equal(t, tc.want[i], p.Match(tag), "message %d", i)
			}
		})
	}
}

func TestUnexpectedOrder(t *testing.T) {
	var a Unexpected
	ids := []uint32{a.Add(1), a.Add(2), a.Add(1), a.Add(3)}
	assert.Equal(t, ids[0], a.Match(0, 0), "wildcard: the oldest of all")
	assert.Equal(t, ids[2], a.Match(1, exact), "exact: the oldest of its tag")
	assert.Equal(t, ids[1], a.Match(0, 1), "mask: the oldest that fits")
	assert.Zero(t, a.Match(9, exact))
	require.Equal(t, 1, a.Len())
	a.Free(ids[0])
	assert.Equal(t, ids[0], a.Add(5), "a freed number is used again")
}

// Emptiness costs nothing and answers nothing.
func TestZero(t *testing.T) {
	var p Posted
	var a Unexpected
	assert.Zero(t, p.Match(1))
	assert.False(t, p.Remove(1))
	assert.False(t, p.Has(1))
	assert.Zero(t, a.Match(0, 0))
}

// The cost of an exact match must not depend on how many others wait. Steps are
// counted, not time.
func TestExactCostIndependent(t *testing.T) {
	var p Posted
	for i := uint32(1); i <= 10_000; i++ {
		p.Add(i, uint64(i), exact)
	}
	for i := uint32(10_001); i <= 20_000; i++ {
		p.Add(i, 77, exact) // one long queue of one tag
	}
	probes := 0
	for tag := uint64(1); tag <= 10_000; tag++ {
		for k := p.idx.bucket(tag); p.idx.table[k&(len(p.idx.table)-1)].tag != tag; k++ {
			probes++
		}
	}
	assert.Less(t, probes, 10_000, "less than one more than needed on average")
	assert.Equal(t, uint32(9_999), p.Match(9_999))
}

func BenchmarkExpected(b *testing.B) {
	for _, queued := range []uint32{0, 100_000} {
		b.Run(map[uint32]string{0: "empty", 100_000: "100000 queued"}[queued], func(b *testing.B) {
			var p Posted
			for i := range queued {
				p.Add(i+2, uint64(i+2), exact)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.Add(1, 1, exact)
				if p.Match(1) != 1 {
					b.Fatal("no match")
				}
			}
		})
	}
}

// Tags that never come again do not make the table grow.
func TestTagsThatNeverComeAgain(t *testing.T) {
	var p Posted
	p.Add(2, exact, exact) // so that the others go through the index
	for i := range uint64(100_000) {
		p.Add(1, i, exact)
		require.Equal(t, uint32(1), p.Match(i))
	}
	assert.Len(t, p.idx.table, 1<<startBits)
}
