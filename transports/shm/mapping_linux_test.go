package shm

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// TestClosedPairsLeaveNoMapping: the memory of a connection goes with it, the
// inboxes stay with the interfaces.
func TestClosedPairsLeaveNoMapping(t *testing.T) {
	var ra, rb recorder
	a, b := openTest(t, &ra), openTest(t, &rb)
	pair := func() {
		e := connectTest(t, a, b)
		n := rb.n
		require.Equal(t, ucs.OK, e.AMShort(1, 0, nil))
		e.Close()
		until(t, func() bool { return rb.n == n+1 && a.Len() == 0 && b.Len() == 0 }, a, b)
	}
	pair()
	before := pairMappings(t)
	for range 5 {
		pair()
	}
	require.Equal(t, before, pairMappings(t))
}

// pairMappings is how many connections' memory this process has mapped.
func pairMappings(t *testing.T) int {
	text, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return strings.Count(string(text), "memfd:goucx-pair")
}
