package ucp_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/verbs/soft"
)

const (
	simHosts    = 4
	simThreads  = 8 // of each host
	simMessages = 6 // of each Thread
)

// simSizes are one packet, several, and rendezvous.
var simSizes = [...]int{8, 3000, 90, 20_000}

// simHost is a context with a device of its own on a lossy network.
type simHost struct {
	x      *ucp.Context
	w      *ucp.Worker
	device *openedDevices
	held   ucp.Held
	qps    uint64
}

// simThread is a Thread that sends to one host.
type simThread struct {
	th   *ucp.Thread
	to   *simHost
	tag  ucp.Tag
	reqs []ucp.Request
	buf  []byte // of the receive
	recv ucp.RecvRequest
	got  uint64
}

// Over a network that loses, doubles, reorders and corrupts packets each message of 32 Threads on four
// hosts arrives once, in the order of its Thread, and nothing is left of closed Threads.
func TestThreadsSimulated(t *testing.T) {
	for transport, seeds := range map[string]uint64{"rc": 2000, "ud": 8000} {
		if os.Getenv("GOUCX_TEST_LONG") == "" {
			seeds = 3
		}
		t.Run(transport, func(t *testing.T) {
			goroutines := runtime.NumGoroutine()
			for seed := uint64(1); seed <= seeds; seed++ {
				simulateThreads(t, seed, transport)
				for limit := time.Now().Add(10 * time.Second); runtime.NumGoroutine() > goroutines; time.Sleep(time.Millisecond) {
					require.True(t, time.Now().Before(limit), "seed %d: goroutines are left", seed)
				}
			}
		})
	}
}

func simulateThreads(t *testing.T, seed uint64, transport string) {
	name := fmt.Sprintf("seed %d", seed)
	sw := soft.NewSwitch()
	var hosts [simHosts]simHost
	var closing atomic.Bool // the network is perfect: over ud, what was lost as a Thread closed is kept for UCX_UD_TIMEOUT
	for i := range hosts {
		h := &hosts[i]
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		faults := &soft.Faults{Hook: func(p *soft.PacketInfo) (v soft.Verdict) {
			if p.Received || closing.Load() {
				return v
			}
			v = soft.Verdict{Drop: random.IntN(500) == 0, Duplicate: random.IntN(100) == 0, Corrupt: random.IntN(500) == 0}
			if random.IntN(100) == 0 {
				v.Delay = time.Duration(random.IntN(20_000))
			}
			return v
		}}
		h.device = new(openedDevices)
		ps := overDevice(transport, h.device, soft.Config{Switch: sw, Faults: faults})
		set, _, err := config.Load(config.Options{Dirs: []string{}}, ucp.Tables(ps)...)
		require.NoError(t, err, name)
		h.x, err = ucp.Open(ucp.Config{Providers: ps, Settings: set})
		require.NoError(t, err, name)
		h.w, err = h.x.NewWorker(ucp.WorkerConfig{Mode: ucp.ThreadSingle})
		require.NoError(t, err, name)
	}
	var all []*simThread
	progress := func() {
		for i := range hosts {
			hosts[i].w.Progress()
		}
		for _, s := range all {
			s.th.Progress()
		}
	}
	limit := time.Now().Add(time.Minute)
	until := func(what string, cond func() bool) {
		t.Helper()
		for !cond() {
			progress()
			require.True(t, time.Now().Before(limit), "%s: %s", name, what)
		}
	}
	var eps [simHosts][simHosts]ucp.Endpoint
	for i := range hosts {
		for k := range hosts {
			var err error
			eps[i][k], err = hosts[i].w.NewEndpoint(hosts[k].w.Address(), ucp.EndpointConfig{})
			require.NoError(t, err, name)
		}
		hosts[i].held, hosts[i].qps = ucp.HeldBy(hosts[i].w), hosts[i].device.objects()["objects.qp"]
	}
	for i := range hosts {
		for k := range simThreads {
			th, err := hosts[i].w.NewThread()
			require.NoError(t, err, name)
			to := (i + 1 + k%(simHosts-1)) % simHosts
			s := &simThread{th: th, to: &hosts[to], tag: ucp.Tag(i*simThreads + k), buf: make([]byte, 20_000)}
			all = append(all, s)
			for n := range uint64(simMessages) {
				s.reqs = append(s.reqs, eps[i][to].On(th).TagSend(simMessage(s.tag, n), s.tag))
			}
			s.recv = s.to.w.TagRecv(s.buf, s.tag, exact)
		}
	}
	until("messages are missing", func() bool {
		missing := false
		for _, s := range all {
			for s.got < simMessages && s.recv.Done() {
				m, err := s.recv.Wait(t.Context())
				require.NoError(t, err, name)
				require.Equal(t, simMessage(s.tag, s.got), s.buf[:m.Len], "%s: message %d of thread %d", name, s.got, s.tag)
				s.got++
				s.recv = s.to.w.TagRecv(s.buf, s.tag, exact)
			}
			missing = missing || s.got < simMessages
		}
		return !missing
	})
	for _, s := range all {
		s.reqs = append(s.reqs, s.th.Flush())
	}
	until("requests have not ended", func() bool {
		for _, s := range all {
			for len(s.reqs) > 0 && s.reqs[0].Done() {
				require.NoError(t, s.reqs[0].Err(), name)
				s.reqs = s.reqs[1:]
			}
			if len(s.reqs) > 0 {
				return false
			}
		}
		return true
	})
	closing.Store(true)
	for _, s := range all {
		require.False(t, s.recv.Done(), "%s: more than was sent", name)
		s.recv.Cancel()
		s.recv.Drop()
		require.NoError(t, s.th.Close(), name)
	}
	all = nil
	until("something of the threads is left", func() bool {
		for i := range hosts {
			if h := &hosts[i]; ucp.HeldBy(h.w) != h.held || h.device.objects()["objects.qp"] != h.qps {
				return false
			}
		}
		return true
	})
	for i := range hosts {
		require.NoError(t, hosts[i].x.Close(), name)
	}
}

// simMessage is message n of a Thread.
func simMessage(tag ucp.Tag, n uint64) []byte {
	p := append([]byte(nil), loadPattern[tag:][:simSizes[(uint64(tag)+n)%uint64(len(simSizes))]]...)
	binary.LittleEndian.PutUint64(p, n)
	return p
}
