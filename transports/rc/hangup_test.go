package rc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/wireup/machine"
)

// TestHangUpAsleep: an interface that closes tells the peers of all connections that
// sleep, also where there are more than messages may be under way.
func TestHangUpAsleep(t *testing.T) {
	const conns = udSends + 20
	c := Component(inproc())
	b, a := newEnd(t, c, 2), newEnd(t, c, 1)
	for i := range conns {
		u, err := a.NewEndpoint(b.address(), 0)
		require.NoError(t, err)
		to := u.(*ep)
		until(t, func() bool { return to.AMUint64(1, 0, 0) == ucs.OK }, a, b)
		until(t, func() bool { return len(b.got) == i+1 }, a, b)
		until(t, func() bool {
			a.inside(func() {
				if to.settleQueue(); to.m.Settled() {
					to.step(machine.Event{Kind: machine.Sleep})
				}
			})
			return a.sees(func() bool { return to.out == nil && to.m.In() == machine.None })
		}, a, b)
	}
	require.NoError(t, a.Close())
	until(t, func() bool { return len(b.failures) == conns && b.alone() }, b)
	for _, f := range b.failures {
		require.NoError(t, f.Err)
	}
}
