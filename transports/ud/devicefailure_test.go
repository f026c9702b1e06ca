package ud

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// TestDeviceFails: a device fails while operations are in flight. All of them end, each with the reason,
// and so does the flow from the peer, also while the worker sleeps.
func TestDeviceFails(t *testing.T) {
	for name, sleep := range map[string]bool{"awake": false, "asleep": true} {
		t.Run(name, func(t *testing.T) {
			ns := nodesWith(t, inproc(), 2, impatient(t, "30m"))
			a, b := ns[0], ns[1]
			to, back := connect(t, a, b), connect(t, b, a)
			until(t, func() bool { return to.AMUint64(1, 2, 3) == ucs.OK }, a, b)
			until(t, func() bool { return back.AMUint64(1, 2, 3) == ucs.OK }, a, b)
			until(t, func() bool { return len(a.got) == 1 && len(b.got) == 1 }, a, b)

			require.NoError(t, soft.FailDevice(b.d.Context())) // nothing is acknowledged any more
			require.Equal(t, ucs.OK, to.AMUint64(1, 2, 4))
			require.Equal(t, ucs.InProgress, to.Flush(uct.FlushRemote, 7))
			if sleep {
				until(t, func() bool { return a.Arm(uct.EventRecv) == ucs.OK }, a)
			}
			require.NoError(t, soft.FailDevice(a.d.Context()))
			if sleep {
				require.True(t, a.readable(time.Minute))
			}
			until(t, func() bool { return len(a.fails) > 0 && len(a.events) > 0 }, a)
			require.ErrorIs(t, a.fails[0].Err, ucs.ErrPeerFailed)
			require.ErrorIs(t, a.fails[0].Err, verbs.ErrDeviceGone)
			require.Equal(t, []uct.Event{{Token: 7, Status: ucs.PeerFailed}}, a.events)
			require.Equal(t, ucs.PeerFailed, to.AMUint64(1, 2, 5))
		})
	}
}
