package cost

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
)

const (
	longest  = 1 << 20 // bytes of an operation
	atOnce   = 16      // operations
	perRound = 10      // runs that are looked at together
	// rounds are how many there may be until one of them allocates nothing: tables and
	// connections grow at first, and other goroutines have their own.
	rounds = 50
)

// flow is a worker that has operations done with another, and what they work with.
type flow struct {
	*testing.T
	a, b    *ucp.Worker
	e       ucp.Endpoint
	key     *ucp.RemoteKey
	word    ucp.Atomic[uint64]
	half    ucp.Atomic[uint32]
	out, in []byte // of longest bytes
	got     int    // active messages
}

// newFlow opens two workers over one transport. registered: what is sent and
// received lies in memory of Allocate.
func newFlow(t *testing.T, tls string, registered bool) *flow {
	c := openContext(t, tls)
	f := &flow{T: t, a: newWorker(t, c), b: newWorker(t, c), out: make([]byte, longest), in: make([]byte, longest)}
	var err error
	f.e, err = f.a.NewEndpoint(f.b.Address(), ucp.EndpointConfig{})
	require.NoError(t, err)
	allocate := func() *ucp.MemHandle {
		m, err := c.Allocate(longest, ucp.MemConfig{})
		require.NoError(t, err)
		return m
	}
	f.key, err = f.e.UnpackKey(allocate().Key())
	require.NoError(t, err)
	f.word, err = ucp.AtomicAt[uint64](f.key, 8)
	require.NoError(t, err)
	f.half, err = ucp.AtomicAt[uint32](f.key, 8)
	require.NoError(t, err)
	require.NoError(t, f.b.HandleAM(9, func(*ucp.AM) { f.got++ }))
	if registered {
		f.out, f.in = allocate().Bytes(), allocate().Bytes()
	}
	return f
}

// until drives both workers.
func (f *flow) until(done func() bool) {
	for limit := ucs.Now().Add(time.Minute); !done(); {
		f.a.Progress()
		f.b.Progress()
		if limit.Before(ucs.Now()) {
			f.Fatal("an operation does not end")
		}
	}
}

func (f *flow) end(rs ...ucp.Request) {
	for _, r := range rs {
		f.until(r.Done)
		require.NoError(f, r.Err())
	}
}

func (f *flow) flushed(rs ...ucp.Request) {
	f.end(rs...)
	f.end(f.e.Flush())
}

func (f *flow) recv(n int) ucp.RecvRequest { return f.b.TagRecv(f.in[:n], 1, math.MaxUint64) }

func (f *flow) received(r ucp.RecvRequest, s ucp.Request) {
	f.until(r.Done)
	_, err := r.Wait(f.Context())
	require.NoError(f, err)
	f.end(s)
}

func (f *flow) message(n int) {
	want := f.got + 1
	s := f.e.AMSend(9, nil, f.out[:n])
	f.until(func() bool { return f.got == want })
	f.end(s)
}

func fetched[T ucp.Word](f *flow, v ucp.Fetch[T]) {
	f.until(v.Done)
	_, err := v.Wait(f.Context())
	require.NoError(f, err)
}

type operation struct {
	name string
	run  func(f *flow, n int)
}

// sized operations are of n bytes.
var sized = []operation{
	{"expected message", func(f *flow, n int) {
		r := f.recv(n)
		f.received(r, f.e.TagSend(f.out[:n], 1))
	}},
	{"unexpected message", func(f *flow, n int) {
		s := f.e.TagSend(f.out[:n], 1)
		f.until(func() bool { _, ok := f.b.TagProbe(1, math.MaxUint64); return ok })
		f.received(f.recv(n), s)
	}},
	{"sync message", func(f *flow, n int) {
		r := f.recv(n)
		f.received(r, f.e.TagSendSync(f.out[:n], 1))
	}},
	{"active message", (*flow).message},
	{"put", func(f *flow, n int) { f.flushed(f.key.Put(f.out[:n], 0)) }},
	{"get", func(f *flow, n int) { f.end(f.key.Get(f.in[:n], 0)) }},
}

// others are of few bytes, or many at once.
var others = []operation{
	{"put of a word", func(f *flow, _ int) { f.flushed(f.key.PutUint64(1, 8)) }},
	{"inline put", func(f *flow, _ int) {
		var b [24]byte
		f.flushed(f.key.PutInline(b[:], 8))
	}},
	{"get of a word", func(f *flow, _ int) { fetched(f, f.key.GetUint64(8)) }},
	{"atomics", func(f *flow, _ int) { f.flushed(f.word.Add(1), f.word.Or(1), f.half.Add(1)) }},
	{"atomics that fetch", func(f *flow, _ int) {
		fetched(f, f.word.FetchAdd(1))
		fetched(f, f.word.Swap(1))
		fetched(f, f.word.CompareAndSwap(1, 2))
		fetched(f, f.half.FetchAdd(1))
	}},
	{"fence and flush", func(f *flow, _ int) {
		f.key.PutUint64(1, 8)
		f.e.Fence()
		f.a.Fence()
		f.key.PutUint64(2, 8)
		f.end(f.e.Flush(), f.a.Flush())
	}},
	{"puts and gets at once", func(f *flow, _ int) {
		var rs [atOnce]ucp.Request
		for i := range rs {
			if p := i * 20_000; i%2 == 0 {
				rs[i] = f.key.Put(f.out[p:][:20_000], 0)
			} else {
				rs[i] = f.key.Get(f.in[p:][:20_000], 0)
			}
		}
		f.flushed(rs[:]...)
	}},
	{"messages at once", func(f *flow, _ int) {
		var rs [atOnce]ucp.RecvRequest
		var ss [atOnce]ucp.Request
		for i := range rs {
			rs[i] = f.b.TagRecv(f.in[i*20_000:][:20_000], 1, math.MaxUint64)
			ss[i] = f.e.TagSend(f.out[i*20_000:][:20_000], 1)
		}
		for i := range rs {
			f.received(rs[i], ss[i])
		}
	}},
}

// TestGateOperations: over no transport an operation allocates, of whatever memory
// it is.
func TestGateOperations(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	t.Setenv("UCX_SOFT_ADDR", "127.0.0.1")
	for _, c := range []struct{ tls, link string }{{"shm", ""}, {"rc", "inproc"}, {"rc", "udp"}, {"ud", "udp"}} {
		for memory, registered := range map[string]bool{"any memory": false, "registered memory": true} {
			if registered && c.tls == "ud" {
				continue // which copies either
			}
			t.Run(c.tls+c.link+", "+memory, func(t *testing.T) {
				if c.link != "" {
					t.Setenv("UCX_SOFT_LINK", c.link)
				}
				f := newFlow(t, c.tls, registered)
				for _, o := range sized {
					for _, n := range []int{8, 1 << 10, 100_000, longest} {
						if n == longest && c.tls == "ud" {
							continue // which has more packets of the same, and takes long
						}
						f.allocatesNothing(fmt.Sprintf("%s of %d bytes", o.name, n), func() { o.run(f, n) })
					}
				}
				for _, o := range others {
					f.allocatesNothing(o.name, func() { o.run(f, 0) })
				}
			})
		}
	}
}

func (f *flow) allocatesNothing(name string, run func()) {
	f.Helper()
	least := uint64(math.MaxUint64)
	for k := 0; k < rounds && least > 0; k++ {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range perRound {
			run()
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	assert.Zero(f, least, "objects of %d times %s", perRound, name)
}
