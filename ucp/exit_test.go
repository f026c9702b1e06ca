package ucp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
	"github.com/goucx/goucx/wireup"
)

// TestExitBesideConnecting: a peer closes in order, which the lane over shm shows, while
// the lane over rc is still connecting. That lane fails as well: closing this worker does
// not wait for an answer on it.
func TestExitBesideConnecting(t *testing.T) {
	drop := soft.Faults{Hook: func(*soft.PacketInfo) soft.Verdict { return soft.Verdict{Drop: true} }}
	silent := rc.Component(func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		return []verbs.Provider{soft.New(soft.Config{Link: soft.LinkInproc, Switch: soft.NewSwitch(), Faults: &drop, Log: log})}
	})
	const limit = time.Minute
	x, err := Open(Config{Providers: []uct.Component{shm.Component(), silent}, CloseTimeout: limit})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	w, err := x.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	peer, err := x.NewWorker(WorkerConfig{Mode: ThreadSingle})
	require.NoError(t, err)
	e, err := w.NewEndpoint(peer.Address(), EndpointConfig{})
	require.NoError(t, err)
	require.NoError(t, e.TagSendUint64(1, 1).Wait(t.Context()))
	_, err = peer.TagRecv(make([]byte, 8), 1, ^Tag(0)).Wait(t.Context())
	require.NoError(t, err)

	w.t.lock()
	id := w.t.eps[w.t.endpoint(e)].peer
	view := w.t.peers.View(id)
	plan, _ := w.t.rankLanes(id, view, wireup.ForAM)
	var lane uint32
	for _, c := range plan[wireup.ForAM] {
		if w.t.ifaces[c.Local].info.Transport == "rc" {
			lane, err = w.t.openLane(id, &view, c)
		}
	}
	require.NoError(t, err)
	require.NotZero(t, lane)
	w.t.sendAddress(lane) // waits for the connection
	require.NotZero(t, w.t.lanes[lane].pending)
	w.t.unlock()

	require.NoError(t, peer.Close())
	for e.Info().Err == nil {
		w.Progress()
	}
	require.ErrorIs(t, e.Info().Err, ErrPeerClosed)
	began := time.Now()
	require.NoError(t, w.Close())
	require.Less(t, time.Since(began), 10*time.Second, "rc gives up after 15 s")
}
