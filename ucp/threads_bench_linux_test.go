package ucp_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/internal/threadtest"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucp/sharing"
	"github.com/goucx/goucx/ucs"
)

// sender is what a goroutine of BenchmarkThreads uses: an endpoint and a key of a worker or of a Thread, and the
// peer's worker, which it drives too.
type sender struct {
	ep      ucp.Endpoint
	key     *ucp.RemoteKey
	drives  interface{ Progress() int } // the worker, or the Thread
	peer    *ucp.Worker
	buf, in []byte
	recvs   []ucp.RecvRequest
}

const sendersBatch = 32 // operations between two looks at the clock's cheaper half: progress

// newSenders opens n senders over a transport: Threads of one worker by a policy, or, without one, workers of
// their own.
func newSenders(tb testing.TB, transport, policy string, mode ucp.ThreadMode, n int) (all []*sender) {
	set, _, err := config.Load(config.Options{Env: []string{"UCX_SOFT_LINK=inproc"}, Dirs: []string{}}, ucp.Tables(provider(transport))...)
	require.NoError(tb, err)
	x, err := ucp.Open(ucp.Config{Providers: provider(transport), Settings: set})
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, x.Close()) })
	conf := ucp.WorkerConfig{Mode: mode, Spin: -1}
	if policy != "" {
		conf.Sharing, err = sharing.Lookup(policy)
		require.NoError(tb, err)
	}
	var w *ucp.Worker
	for range n {
		if w == nil || policy == "" {
			w, err = x.NewWorker(conf)
			require.NoError(tb, err)
		}
		s := &sender{drives: w, buf: make([]byte, 8), in: make([]byte, 8), recvs: make([]ucp.RecvRequest, sendersBatch)}
		s.peer, err = x.NewWorker(ucp.WorkerConfig{Mode: mode, Spin: -1})
		require.NoError(tb, err)
		s.ep, err = w.NewEndpoint(s.peer.Address(), ucp.EndpointConfig{})
		require.NoError(tb, err)
		if policy != "" {
			t, err := w.NewThread()
			require.NoError(tb, err)
			s.ep, s.drives = s.ep.On(t), t
		}
		mem, err := x.Allocate(4096, ucp.MemConfig{})
		require.NoError(tb, err)
		s.key, err = s.ep.UnpackKey(mem.Key())
		require.NoError(tb, err)
		s.tags(time.Millisecond)
		all = append(all, s)
	}
	return all
}

// puts writes eight bytes again and again.
func (s *sender) puts(d time.Duration) (n int) {
	for end := ucs.Now().Add(d); ucs.Now() < end; {
		for range 64 {
			var r ucp.Request
			for range sendersBatch {
				r = s.key.Put(s.buf, 0)
			}
			n += sendersBatch
			for s.drives.Progress(); !r.Done(); {
				s.peer.Progress()
				s.drives.Progress()
			}
		}
	}
	for r := s.ep.Flush(); !r.Done(); {
		s.peer.Progress()
		s.drives.Progress()
	}
	return n
}

// tags sends messages of eight bytes to receives that are posted.
func (s *sender) tags(d time.Duration) (n int) {
	for end := ucs.Now().Add(d); ucs.Now() < end; {
		for range 16 {
			for i := range s.recvs {
				s.recvs[i] = s.peer.TagRecv(s.in, 1, exact)
			}
			for range s.recvs {
				s.ep.TagSend(s.buf, 1)
			}
			for _, r := range s.recvs {
				for !r.Done() {
					s.peer.Progress()
					s.drives.Progress()
				}
				r.Drop()
			}
			n += len(s.recvs)
		}
	}
	return n
}

func loops(ss []*sender, f func(*sender, time.Duration) int) (out []threadtest.Loop) {
	for _, s := range ss {
		out = append(out, func(d time.Duration) int { return f(s, d) })
	}
	return out
}

// goroutines is one loop, of all that the goroutines of ss do.
func goroutines(ss []*sender, f func(*sender, time.Duration) int) []threadtest.Loop {
	return []threadtest.Loop{func(d time.Duration) int {
		var sum atomic.Int64
		var all sync.WaitGroup
		for _, s := range ss {
			all.Go(func() { sum.Add(int64(f(s, d))) })
		}
		all.Wait()
		return int(sum.Load())
	}}
}

func serveSender(t *testing.T, transport string, f func(*sender, time.Duration) int) {
	threadtest.Serve(t, func() threadtest.Loop {
		return loops(newSenders(t, transport, "", ucp.ThreadSingle, 1), f)[0]
	})
}

// The programs of BenchmarkThreads.
func TestThreadsProcessPutShm(t *testing.T) { serveSender(t, "shm", (*sender).puts) }
func TestThreadsProcessPutRC(t *testing.T)  { serveSender(t, "rc", (*sender).puts) }
func TestThreadsProcessTagShm(t *testing.T) { serveSender(t, "shm", (*sender).tags) }

// BenchmarkThreads compares goroutines that have a Thread each, of one worker, with programs and with workers.
// Each goroutine drives both ends of its connections.
func BenchmarkThreads(b *testing.B) {
	for _, c := range []struct {
		name, transport, program string
		f                        func(*sender, time.Duration) int
	}{
		{"put/shm", "shm", "TestThreadsProcessPutShm", (*sender).puts},
		{"put/rc", "rc", "TestThreadsProcessPutRC", (*sender).puts},
		{"tag/shm", "shm", "TestThreadsProcessTagShm", (*sender).tags},
	} {
		b.Run(c.name, func(b *testing.B) {
			of := func(policy string, n int) []threadtest.Loop {
				return loops(newSenders(b, c.transport, policy, ucp.ThreadSingle, n), c.f)
			}
			threadtest.Compare(b,
				threadtest.Form{Name: "programs", Programs: c.program, Processors: 2},
				threadtest.Form{Name: "workers", Loops: of("", 2)},
				threadtest.Form{Name: "threads", Loops: of("dynamic", 2), Against: []string{"programs", "workers"}},
				threadtest.Form{Name: "worker", Loops: of("", 1)},
				threadtest.Form{Name: "thread", Loops: of("dynamic", 1), Against: []string{"worker"}},
				threadtest.Form{Name: "multi", Loops: goroutines(newSenders(b, c.transport, "mpi-threads", ucp.ThreadMulti, 1), c.f)},
				threadtest.Form{Name: "multi8", Loops: goroutines(newSenders(b, c.transport, "mpi-threads", ucp.ThreadMulti, 8), c.f), Against: []string{"multi"}},
			)
		})
	}
}
