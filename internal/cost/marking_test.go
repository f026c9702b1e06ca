package cost

import (
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/ucp"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/ucs/cpu"
)

// Limits of the cost of an operation while the garbage collector marks, as multiples of its cost otherwise. While it
// marks, each store of a pointer to the heap or to a slot that held one runs a write barrier.
const (
	markingLimit     = 1.5 // of an eager send, and of a put
	markingRecvLimit = 2.5 // of a receive: posted, matched and waited for
)

// link is an object of a long list, which one worker of the collector marks object by object.
type link struct {
	next *link
	_    [6]uint64
}

// mark has the collector mark almost all the time until the returned function is called.
func mark() (stop func()) {
	var list *link
	for range 1 << 20 {
		list = &link{next: list}
	}
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
			runtime.GC()
		}
		runtime.KeepAlive(list)
	}()
	return func() { over.Store(true); <-done }
}

// markSeconds returns the time that the collector's workers have marked.
func markSeconds() (sum float64) {
	ms := []metrics.Sample{{Name: "/cpu/classes/gc/mark/dedicated:cpu-seconds"}, {Name: "/cpu/classes/gc/mark/idle:cpu-seconds"}}
	metrics.Read(ms)
	for _, m := range ms {
		sum += m.Value.Float64()
	}
	return sum
}

// markedCost holds cycles per operation.
type markedCost struct{ send, put, recv float64 }

// costs returns the median cost of batches of operations between two workers over shm.
func costs(t testing.TB, f *flow) markedCost {
	const batches = 2000
	limit := ucs.Now().Add(200 * time.Millisecond)
	const n = atOnce
	var send, put, post, wait []float64
	var in [n][8]byte
	var out [8]byte
	var recvs [n]ucp.RecvRequest
	ctx := t.Context()
	for len(send) < batches || ucs.Now() < limit {
		start := cpu.Cycles()
		for i := range recvs {
			recvs[i] = f.b.TagRecv(in[i][:], 1, math.MaxUint64)
		}
		posted := cpu.Cycles()
		for range n {
			f.e.TagSend(out[:], 1)
		}
		sent := cpu.Cycles()
		for i := range recvs {
			if _, err := recvs[i].Wait(ctx); err != nil {
				t.Fatal(err)
			}
		}
		waited := cpu.Cycles()
		for range n {
			f.key.Put(out[:], 8)
		}
		written := cpu.Cycles()
		post, send = append(post, float64(posted-start)/n), append(send, float64(sent-posted)/n)
		wait, put = append(wait, float64(waited-sent)/n), append(put, float64(written-waited)/n)
		f.a.Progress()
	}
	for _, all := range [][]float64{send, put, post, wait} {
		slices.Sort(all)
	}
	k := len(send) / 2
	return markedCost{send: send[k], put: put[k], recv: post[k] + wait[k]}
}

// TestGateMarking compares what operations cost while the collector marks with what they cost otherwise. The figures
// are those of the best of some rounds; time is the machine's.
func TestGateMarking(t *testing.T) {
	if race.Enabled {
		t.Skip("times are not the product's under the race detector")
	}
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("one processor: the collector does not run beside the operations")
	}
	f := newFlow(t, "shm", false)
	f.end(f.e.TagSend(f.out[:8], 1))
	f.received(f.recv(8), f.e.TagSend(f.out[:8], 1))
	f.received(f.recv(8), ucp.Request{})
	const rounds = 3
	best := markedCost{math.Inf(1), math.Inf(1), math.Inf(1)}
	for range rounds {
		runtime.GC()
		quiet := costs(t, f)
		stop := mark()
		before, began := markSeconds(), ucs.Now()
		marking := costs(t, f)
		stop()
		share := (markSeconds() - before) / ucs.Now().Sub(began).Seconds()
		require.Greater(t, share, 0.2, "the share of the time in which the collector marked")
		ratio := markedCost{marking.send / quiet.send, marking.put / quiet.put, marking.recv / quiet.recv}
		t.Logf("marked %.0f %% of the time; cycles while the collector rests, and while it marks: send %.0f, %.0f (%.2f); put %.0f, %.0f (%.2f); receive %.0f, %.0f (%.2f)",
			100*share, quiet.send, marking.send, ratio.send, quiet.put, marking.put, ratio.put, quiet.recv, marking.recv, ratio.recv)
		best = markedCost{min(best.send, ratio.send), min(best.put, ratio.put), min(best.recv, ratio.recv)}
	}
	t.Logf("cost while the collector marks: send %.2f times the cost otherwise, put %.2f, at most %.1f; receive %.2f, at most %.1f",
		best.send, best.put, markingLimit, best.recv, markingRecvLimit)
	assert.LessOrEqual(t, best.send, markingLimit)
	assert.LessOrEqual(t, best.put, markingLimit)
	assert.LessOrEqual(t, best.recv, markingRecvLimit)
}
