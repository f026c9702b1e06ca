package ucp

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/shm"
	"github.com/goucx/goucx/uct"
)

// An endpoint of ThreadMulti fails while other goroutines use its key: nothing that
// they read without the lock is written.
func TestFailWhileOthersPut(t *testing.T) {
	x, err := Open(Config{Providers: []uct.Component{shm.Component()}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	m, err := x.Allocate(64, MemConfig{})
	require.NoError(t, err)
	w, err := x.NewWorker(WorkerConfig{Mode: ThreadMulti})
	require.NoError(t, err)
	owner, err := x.NewWorker(WorkerConfig{Mode: ThreadMulti})
	require.NoError(t, err)
	e, err := w.NewEndpoint(owner.Address(), EndpointConfig{})
	require.NoError(t, err)
	require.NoError(t, e.TagSendUint64(1, 1).Wait(t.Context())) // it is connected
	k, err := e.UnpackKey(m.Key())
	require.NoError(t, err)
	word, err := AtomicAt[uint64](k, 8)
	require.NoError(t, err)
	var wg sync.WaitGroup
	begun := make(chan bool, 2)
	for _, post := range []func() Request{
		func() Request { return k.PutUint64(1, 0) },
		func() Request { return word.Add(1) },
	} {
		wg.Go(func() {
			for n := 0; ; n++ {
				if err := post().Wait(t.Context()); err != nil {
					assert.ErrorIs(t, err, ErrPeerFailed)
					return
				}
				if n == 100 {
					begun <- true
				}
			}
		})
	}
	<-begun
	<-begun
	w.t.lock()
	w.t.failPeer(k.rma.lane, errGone)
	w.t.unlock()
	wg.Wait()
}
