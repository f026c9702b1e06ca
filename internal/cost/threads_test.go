package cost

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
)

// unusedThreadLimit is the limit of a Thread that was not used, in bytes.
const unusedThreadLimit = 1 << 10

// TestGateUnusedThread measures Threads without an endpoint.
func TestGateUnusedThread(t *testing.T) {
	if race.Enabled {
		t.Skip("sizes are not the product's under the race detector")
	}
	const n = 1000
	w := newWorker(t, openContext(t, "self,shm"))
	threads := make([]*ucp.Thread, n)
	before := usage(t)
	for i := range threads {
		var err error
		threads[i], err = w.NewThread()
		require.NoError(t, err)
	}
	u := usage(t).minus(before)
	t.Logf("unused Thread: %d bytes, at most %d", u.heap/n, unusedThreadLimit)
	assert.LessOrEqual(t, u.heap/n, unusedThreadLimit)
	assert.Zero(t, u.mapped)
	assert.Zero(t, u.files)
	runtime.KeepAlive(threads)
}

// TestGateConnectedThread takes both sides of a Thread's connections to 64 peers together, and halves them, as
// TestGateConnectedPeer.
func TestGateConnectedThread(t *testing.T) {
	if race.Enabled {
		t.Skip("sizes are not the product's under the race detector")
	}
	const n = 64
	s := newStar(t, n+1)
	s.connect(t)
	th, err := s.hub.NewThread()
	require.NoError(t, err)
	var eps []ucp.Endpoint
	for _, p := range s.peers {
		e, err := s.hub.NewEndpoint(p.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		eps = append(eps, e.On(th))
	}
	send := func(i int) {
		got := s.peers[i].TagRecv(make([]byte, 8), 1, 0)
		sent := eps[i].TagSend(make([]byte, 8), 1)
		for !got.Done() || !sent.Done() {
			th.Progress()
			s.peers[i].Progress()
		}
		_, err := got.Wait(t.Context())
		require.NoError(t, err)
	}
	send(n) // what a Thread takes once
	s.settle()
	before := usage(t)
	for i := range n {
		send(i)
	}
	s.settle()
	u := usage(t).minus(before)
	each := (u.heap + u.mapped) / (2 * n)
	t.Logf("peer of a Thread over shm: %d bytes on each side, at most %d (mapped %d, heap %d; %.1f descriptors)",
		each, peerLimit, u.mapped/(2*n), u.heap/(2*n), float64(u.files)/(2*n))
	assert.LessOrEqual(t, each, peerLimit)
	assert.Positive(t, u.mapped, "the peers are not connected by shared memory")
}
