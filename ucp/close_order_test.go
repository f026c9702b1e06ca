package ucp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/uct"
)

// shmWorkers returns a function that makes workers of one context, over shm.
func shmWorkers(t *testing.T) (newOne func() *Worker) {
	x, err := Open(Config{Providers: []uct.Component{shm.Component()}, CloseTimeout: time.Minute})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return func() *Worker {
		w, err := x.NewWorker(WorkerConfig{})
		require.NoError(t, err)
		return w
	}
}

// A peer that closes while a worker closes is no error of it, whoever failed before;
// one that fails is.
func TestCloseWhilePeersClose(t *testing.T) {
	for name, c := range map[string]struct {
		before, during bool // a peer fails
	}{
		"all close": {}, "one had failed": {before: true}, "one fails": {during: true},
	} {
		t.Run(name, func(t *testing.T) {
			newOne := shmWorkers(t)
			w, dies, leaves := newOne(), newOne(), newOne()
			sync := func(to *Worker) uint32 {
				e, err := w.NewEndpoint(to.Address(), EndpointConfig{})
				require.NoError(t, err)
				e.TagSendUint64(1, 1)
				for r := to.TagRecv(make([]byte, 8), 1, 1); !r.Done(); {
					w.Progress()
					to.Progress()
				}
				e.TagSendSync(nil, 2) // nobody receives it
				return w.t.eps[w.t.endpoint(e)].lane
			}
			dead, _ := sync(dies), sync(leaves)
			if c.before {
				w.t.failPeer(dead, errGone)
			}
			f := w.t.flushAlive()
			require.False(t, f.Done())
			if c.during {
				w.t.failPeer(dead, errGone)
			}
			require.NoError(t, leaves.Close())
			require.NoError(t, dies.Close())
			_, w.flushErr = f.waitBounded()
			require.ErrorIs(t, w.flushErr, ErrPeerFailed)
			w.flushed = true // as in Context.Close
			err := w.Close()
			if c.during {
				require.ErrorIs(t, err, ErrPeerFailed)
				return
			}
			require.NoError(t, err)
		})
	}
}
