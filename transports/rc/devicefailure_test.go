package rc

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// TestDeviceFails: a device fails while operations are in flight. All of them end, and each connection
// with the reason, which its peer's device does not have.
func TestDeviceFails(t *testing.T) {
	var silent atomic.Bool
	c := Component(faulty(soft.Faults{Hook: func(*soft.PacketInfo) soft.Verdict { return soft.Verdict{Drop: silent.Load()} }}))
	set := settingsOf(t, "UCX_RC_KEEPALIVE_INTERVAL=inf", "UCX_RC_TIMEOUT=2s")
	a, b, idle := newEndWith(t, c, 1, set), newEndWith(t, c, 2, set), newEndWith(t, c, 3, set)
	to, err := a.NewEndpoint(b.address())
	require.NoError(t, err)
	toIdle, err := a.NewEndpoint(idle.address())
	require.NoError(t, err)
	until(t, func() bool { return toIdle.AMUint64(1, 2, 3) == ucs.OK }, a, idle)
	until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, a, b)
	until(t, func() bool { return len(b.got) == 1 && len(idle.got) == 1 }, a, b, idle)

	silent.Store(true) // nothing is acknowledged
	for range 5 {
		require.Equal(t, ucs.OK, to.AMUint64(1, 2, 4))
	}
	require.Equal(t, ucs.InProgress, to.Flush(uct.FlushRemote, 7))
	require.NoError(t, soft.FailDevice(a.d.Context()))
	until(t, func() bool { return len(a.failures) == 2 }, a)
	for _, f := range a.failures {
		require.ErrorIs(t, f.Err, ucs.ErrPeerFailed)
		require.ErrorIs(t, f.Err, verbs.ErrDeviceGone)
	}
	require.Len(t, a.events, 1)
	require.Equal(t, uct.Token(7), a.events[0].Token)
	require.Equal(t, ucs.PeerFailed, a.events[0].Status)
	require.Equal(t, ucs.PeerFailed, to.AMUint64(1, 2, 5))
	require.Empty(t, b.failures)
}
