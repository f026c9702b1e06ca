package ud

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// TestListening: an interface without peers has no memory to send from and few
// receives, and with the first peer has all, on either side.
func TestListening(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	for _, n := range ns {
		require.True(t, n.sees(func() bool { return n.tx.small.Slab == nil && n.rx.Free() == len(n.heldLens)-initialReceives }))
	}
	e := connect(t, a, b)
	until(t, func() bool { return e.AMUint64(1, 1, 1) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	for _, n := range ns {
		require.True(t, n.sees(func() bool { return n.tx.small.Slab != nil && n.rx.Free() == 0 }))
	}
}
