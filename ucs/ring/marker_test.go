package ring

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMarkerFindsRoomInAFullRing and comes after everything before it.
func TestMarkerFindsRoomInAFullRing(t *testing.T) {
	p, c, _ := newPair(t, testLayout)
	for round := range uint64(100) {
		n := uint64(0)
		for p.Room() {
			p.Cell().SetHeader(n)
			p.Cell().Publish(First(p.Head(), 1, 0))
			p.Advance()
			n++
		}
		require.Positive(t, n, "round %d", round)
		if round == 99 {
			p.Mark(77)
		}
		for i := range n {
			first, more := c.Poll()
			require.True(t, more)
			_, ok := c.Mark(first)
			require.False(t, ok, "a message is no marker")
			require.Equal(t, i, c.Header())
			c.Advance()
			c.Release()
		}
		p.Refresh()
	}
	first, more := c.Poll()
	require.True(t, more)
	_, _, ok := c.Inline(first)
	require.False(t, ok)
	_, _, ok = c.Bulk(first)
	require.False(t, ok, "a marker looks like garbage to who does not know it")
	next, ok := c.Mark(first)
	require.True(t, ok)
	require.Equal(t, uint64(77), next)
	require.False(t, p.Room())
	require.True(t, p.Refresh(), "the consumer's word is still believed")
	require.False(t, p.Room())
}
