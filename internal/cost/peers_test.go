package cost

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

// Limits of a connected peer over shared memory.
const (
	peerLimit = 40 << 10 // bytes
	idleLimit = 30       // ns of an idle progress, printed beside the figure
)

// star is a worker with peers, each of which sent it a message and got one.
type star struct {
	hub   *ucp.Worker
	peers []*ucp.Worker
}

func newStar(t testing.TB, n int) *star {
	c := openContext(t, "self,shm") // closes the workers
	s := &star{hub: newWorker(t, c)}
	for range n {
		s.peers = append(s.peers, newWorker(t, c))
	}
	return s
}

// connect exchanges a message with every peer, over a connection that both
// sides then have.
func (s *star) connect(t testing.TB) {
	for i, p := range s.peers {
		out, err := p.NewEndpoint(s.hub.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		s.exchange(t, out, p, s.hub, ucp.Tag(i))
		back, err := s.hub.NewEndpoint(p.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		s.exchange(t, back, s.hub, p, ucp.Tag(i))
	}
}

// exchange sends a message and drives both sides until it is there.
func (s *star) exchange(t testing.TB, e ucp.Endpoint, from, to *ucp.Worker, tag ucp.Tag) {
	buf := make([]byte, 8)
	sent := e.TagSend(buf, tag)
	got := to.TagRecv(make([]byte, 8), tag, math.MaxUint64)
	for limit := ucs.Now().Add(time.Minute); !got.Done() || !sent.Done(); {
		from.Progress()
		to.Progress()
		if limit.Before(ucs.Now()) {
			t.Fatalf("message %d does not arrive: %v, %v", tag, sent, got)
		}
	}
	m, err := got.Wait(t.Context())
	require.NoError(t, err)
	assert.Equal(t, tag, m.Tag)
}

// TestGateConnectedPeer takes both sides of 64 connections together, since both
// are in this process, and halves them. All workers have been connected before,
// to others, so that what a worker takes once is not counted.
func TestGateConnectedPeer(t *testing.T) {
	if race.Enabled {
		t.Skip("sizes are not the product's under the race detector")
	}
	const n = 64
	s := newStar(t, n)
	s.connect(t)
	hub := newStar(t, 1)
	hub.connect(t)
	s.hub = hub.hub
	s.settle()
	before := usage(t)
	s.connect(t)
	s.settle()
	u := usage(t).minus(before)
	each := (u.heap + u.mapped) / (2 * n)
	t.Logf("connected peer over shm: %d bytes on each side, at most %d (mapped %d, heap %d; %.1f descriptors)",
		each, peerLimit, u.mapped/(2*n), u.heap/(2*n), float64(u.files)/(2*n))
	assert.LessOrEqual(t, each, peerLimit)
	assert.Positive(t, u.mapped, "the peers are not connected by shared memory")
}

// settle drives all workers until nothing happens any more.
func (s *star) settle() {
	for quiet := 0; quiet < 100; quiet++ {
		for _, w := range append(s.peers, s.hub) {
			if w.Progress() > 0 {
				quiet = 0
			}
		}
	}
}

// TestGateIdleProgress logs the cost of a pass in which nothing happens; time is
// the machine's, so only its growth with the number of peers is held.
func TestGateIdleProgress(t *testing.T) {
	if race.Enabled {
		t.Skip("times are not the product's under the race detector")
	}
	few, many := idleProgress(t, 1), idleProgress(t, 256)
	t.Logf("idle progress: %.1f ns with 1 connected peer, %.1f ns with 256, at most %d", few, many, idleLimit)
	assert.Less(t, many, 20*few+100, "the cost grows with the number of peers")
}

// idleProgress gives the shortest mean time of a pass among some batches.
func idleProgress(t *testing.T, peers int) float64 {
	s := newStar(t, peers)
	s.connect(t)
	s.settle()
	best := math.Inf(1)
	const passes = 100_000
	for range 20 {
		start := ucs.Now()
		for range passes {
			s.hub.Progress()
		}
		best = min(best, float64(ucs.Now().Sub(start))/passes)
	}
	return best
}

// BenchmarkIdleProgress is the same for benchstat.
func BenchmarkIdleProgress(b *testing.B) {
	for _, n := range []int{1, 256} {
		b.Run(fmt.Sprintf("peers=%d", n), func(b *testing.B) {
			s := newStar(b, n)
			s.connect(b)
			s.settle()
			b.ReportAllocs()
			for b.Loop() {
				s.hub.Progress()
			}
		})
	}
}
