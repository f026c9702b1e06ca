package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// TestListening: an interface without connections has no memory for messages, and
// with the first has all of it, on either side.
func TestListening(t *testing.T) {
	c := Component(inproc())
	a, b := newEnd(t, c, 1), newEnd(t, c, 2)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	for _, e := range []*end{a, b} {
		e.inside(func() {
			require.Zero(t, e.postedRecvs)
			require.Empty(t, e.rx.Mem())
			require.Empty(t, e.tx.Mem())
		})
	}
	until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 }, a, b)
	for _, e := range []*end{a, b} {
		e.inside(func() {
			require.Positive(t, e.postedRecvs)
			require.Len(t, e.rx.Mem(), (e.recvTarget+e.maxRetained)*e.seg)
			require.NotEmpty(t, e.tx.Mem())
			require.Zero(t, e.ud.rx.Free(), "all receives of connection messages are posted")
		})
	}
}
