package ucp_test

import (
	"context"
	"math"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/goucx/goucx/config"
	"github.com/goucx/goucx/transports/rc"
	"github.com/goucx/goucx/transports/ud"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/uct"
	"github.com/goucx/goucx/verbs"
	"github.com/goucx/goucx/verbs/soft"
)

// openedDevices keeps the device that was opened last.
type openedDevices struct {
	verbs.Provider
	last verbs.Context
}

func (p *openedDevices) Open(d verbs.DeviceInfo) (c verbs.Context, err error) {
	c, err = p.Provider.Open(d)
	p.last = c
	return c, err
}

// objects counts the open objects of the device.
func (p *openedDevices) objects() map[string]uint64 {
	n := make(map[string]uint64)
	if p.last == nil {
		return n
	}
	for _, c := range p.last.Stats().Snapshot() {
		if strings.HasPrefix(c.Name, "objects.") {
			n[c.Name] = c.Value
		}
	}
	return n
}

// overDevice is rc or ud over d, an in-process device.
func overDevice(transport string, d *openedDevices, c soft.Config) []uct.Component {
	devices := func(_ *config.Set, log *zap.Logger) []verbs.Provider {
		c.Link, c.Log = soft.LinkInproc, log
		d.Provider = soft.New(c)
		return []verbs.Provider{d}
	}
	if transport == "rc" {
		return []uct.Component{rc.Component(devices)}
	}
	return []uct.Component{ud.Component(devices)}
}

// threadPair is two workers between which Threads come and go.
type threadPair struct {
	*testing.T
	a, b   *ucp.Worker
	ep     ucp.Endpoint
	key    *ucp.RemoteKey
	device *openedDevices
}

// threadsHold is what the process, the workers and the device hold.
type threadsHold struct {
	Goroutines, Descriptors, Mappings int
	A, B                              ucp.Held
	Objects                           map[string]uint64
}

func newThreadPair(t *testing.T, transport string) *threadPair {
	p := &threadPair{T: t, device: new(openedDevices)}
	ps := provider(transport)
	if transport != "shm" {
		ps = overDevice(transport, p.device, soft.Config{Switch: soft.NewSwitch()})
	}
	set, _, err := config.Load(config.Options{Dirs: []string{}}, ucp.Tables(ps)...)
	require.NoError(t, err)
	x, err := ucp.Open(ucp.Config{Providers: ps, Settings: set})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	p.a, err = x.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	p.b, err = x.NewWorker(ucp.WorkerConfig{})
	require.NoError(t, err)
	p.ep, err = p.a.NewEndpoint(p.b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	mem, err := x.Allocate(64, ucp.MemConfig{})
	require.NoError(t, err)
	p.key, err = p.ep.UnpackKey(mem.Key())
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = p.b.Run(ctx) })
	t.Cleanup(func() { stop(); run.Wait() })
	p.ep.TagSendUint64(1, 2) // the worker's connection stays
	_, err = p.b.TagRecv(make([]byte, 8), 2, exact).Wait(ctx)
	require.NoError(t, err)
	require.NoError(t, p.ep.Flush().Wait(ctx))
	return p
}

// use opens, uses and closes n Threads, one after another.
func (p *threadPair) use(n int) {
	buf := make([]byte, 8)
	for range n {
		th, err := p.a.NewThread()
		require.NoError(p, err)
		r := p.b.TagRecv(buf, 1, exact)
		require.NoError(p, p.ep.On(th).TagSendUint64(1, 1).Wait(p.Context()))
		_, err = r.Wait(p.Context())
		require.NoError(p, err)
		require.NoError(p, p.key.On(th).PutUint64(1, 0).Wait(p.Context()))
		require.NoError(p, th.Close())
	}
}

// holds counts.
func (p *threadPair) holds() threadsHold {
	h := threadsHold{Goroutines: runtime.NumGoroutine(), A: ucp.HeldBy(p.a), B: ucp.HeldBy(p.b), Objects: p.device.objects()}
	fds, err := os.ReadDir("/proc/self/fd")
	require.NoError(p, err)
	h.Descriptors = len(fds)
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(p, err)
	h.Mappings = strings.Count(string(maps), "goucx")
	return h
}

// requireHolds waits until no more is held than want: connections take a moment to end.
func (p *threadPair) requireHolds(want threadsHold) {
	p.Helper()
	var h threadsHold
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		h = p.holds()
		h.Goroutines = max(h.Goroutines, want.Goroutines) // one of an earlier test may end
		if assert.ObjectsAreEqual(want, h) {
			return
		}
		if time.Now().After(limit) {
			require.Equal(p, want, h)
		}
	}
}

// Threads that are used and closed leave nothing: no goroutine, descriptor, mapping, peer, connection,
// verbs object or memory.
func TestThreadsLeaveNothing(t *testing.T) {
	warm, n := 50, 100
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		warm, n = 1000, 10_000
	}
	for _, transport := range senderTransports {
		t.Run(transport, func(t *testing.T) {
			p := newThreadPair(t, transport)
			before := p.holds()
			p.use(warm)
			p.requireHolds(before)
			more := int64(math.MaxInt64)
			for round := 0; round < 3 && more >= int64(400*n); round++ { // pools and lists grow now and then, a leak in each round
				h := heap()
				p.use(n)
				p.requireHolds(before)
				more = min(more, heap()-h)
			}
			t.Logf("%d bytes more in the heap, %+v", more, before)
			require.Less(t, more, int64(400*n), "bytes of the heap that %d Threads left", n)
		})
	}
}

// A Thread that was not used has nothing but its struct, however many there are.
func TestThreadsUnused(t *testing.T) {
	p := newThreadPair(t, "rc")
	before, h := p.holds(), heap()
	all := make([]*ucp.Thread, 1000)
	for i := range all {
		var err error
		all[i], err = p.a.NewThread()
		require.NoError(t, err)
	}
	p.requireHolds(before)
	require.Less(t, heap()-h, int64(1000*len(all)))
	for i, th := range all {
		require.NoError(t, th.Close())
		all[i] = nil
	}
	p.requireHolds(before)
	require.Less(t, heap()-h, int64(100*len(all)))
}
