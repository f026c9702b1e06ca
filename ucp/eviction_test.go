package ucp_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucp"
)

// crowd is a worker with more peers than it may have live connections.
type crowd struct {
	t     *testing.T
	hub   *ucp.Worker
	peers []*ucp.Worker
	to    []ucp.Endpoint // from the hub to each
	back  []ucp.Endpoint
	drive func()
}

const mostLive = 3

func newCrowd(t *testing.T, transport string, mode ucp.ThreadMode, n int) *crowd {
	t.Helper()
	c, err := ucp.Open(ucp.Config{
		Providers: provider(transport), Settings: settings(t, "UCX_SOFT_LINK=inproc", "UCX_MAX_LIVE_CONNECTIONS=3"),
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	worker := func() *ucp.Worker {
		w, err := c.NewWorker(ucp.WorkerConfig{Mode: mode})
		require.NoError(t, err)
		return w
	}
	endpoint := func(from, to *ucp.Worker) ucp.Endpoint {
		e, err := from.NewEndpoint(to.Address(), ucp.EndpointConfig{})
		require.NoError(t, err)
		return e
	}
	s := &crowd{t: t, hub: worker()}
	for range n {
		w := worker()
		s.peers = append(s.peers, w)
		s.to, s.back = append(s.to, endpoint(s.hub, w)), append(s.back, endpoint(w, s.hub))
	}
	s.drive = func() {
		s.hub.Progress()
		for _, w := range s.peers {
			w.Progress()
		}
	}
	return s
}

func (s *crowd) until(done func() bool) {
	s.t.Helper()
	for end := time.Now().Add(time.Minute); !done(); s.drive() {
		require.True(s.t, time.Now().Before(end), "waited too long")
	}
}

// exchange sends from the hub to each peer and back, and wants all to come in
// order.
func (s *crowd) exchange(from, n uint64) {
	s.t.Helper()
	rs := make(map[*[8]byte]ucp.RecvRequest)
	want := make(map[*[8]byte]uint64)
	for i := range s.peers {
		for v := from; v < from+n; v++ {
			for _, r := range []struct {
				w *ucp.Worker
				e ucp.Endpoint
			}{{s.peers[i], s.to[i]}, {s.hub, s.back[i]}} {
				b := new([8]byte)
				rs[b], want[b] = r.w.TagRecv(b[:], ucp.Tag(i), exact), v
				r.e.TagSendUint64(v, ucp.Tag(i))
			}
		}
	}
	for b, r := range rs {
		s.until(r.Done)
		_, err := r.Wait(context.Background())
		require.NoError(s.t, err)
		require.EqualValues(s.t, want[b], b[0], "the order")
	}
}

// With more peers than live connections those that are not in use go to sleep, and
// wake on use; nothing is lost, and what is sent meanwhile comes in order.
func TestMaxLiveConnections(t *testing.T) {
	const peers, rounds, each = 10, 4, 5
	for _, transport := range []string{"shm", "rc"} {
		t.Run(transport, func(t *testing.T) {
			s := newCrowd(t, transport, ucp.ThreadSingle, peers)
			for k := range uint64(rounds) {
				s.exchange(k*each, each)
				if k%2 == 0 { // else they are used while some fall asleep
					s.until(func() bool { return s.hub.LiveConnections() <= mostLive })
				}
			}
			naps := uint64(0)
			for _, v := range s.hub.Stats().Snapshot() {
				if strings.HasSuffix(v.Name, ".naps") {
					naps += v.Value
				}
			}
			require.GreaterOrEqual(t, naps, uint64(peers-mostLive))
		})
		t.Run(transport+", waiting", func(t *testing.T) {
			s := newCrowd(t, transport, ucp.ThreadMulti, peers)
			ctx, cancel := context.WithCancel(context.Background())
			var all sync.WaitGroup
			for _, w := range append(s.peers, s.hub) {
				all.Go(func() { _ = w.Run(ctx) })
			}
			s.drive = func() { time.Sleep(100 * time.Microsecond) }
			for k := range uint64(2) {
				s.exchange(k*each, each)
				s.until(func() bool { return s.hub.LiveConnections() <= mostLive })
			}
			cancel()
			all.Wait()
		})
	}
}
