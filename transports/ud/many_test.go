package ud

import (
	"os"
	"reflect"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/transports/ud/arq"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/uct"
)

// TestManyToOne: more senders than the receiver has memory for windows of; all get
// their share, and everything comes.
func TestManyToOne(t *testing.T) {
	senders, each := 30, uint64(200)
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		senders, each = 60, 500
	}
	ns := nodes(t, inproc(), senders+1)
	to := ns[0]
	next := make([]uint64, len(ns))
	to.onAM = func(d *uct.Desc) {
		from := d.Header >> 32
		require.Equal(t, next[from], d.Header&(1<<32-1), "sender %d", from)
		next[from]++
	}
	es, sent := make([]*endpoint, len(ns)), make([]uint64, len(ns))
	for i := 1; i < len(ns); i++ {
		es[i] = connect(t, ns[i], to)
	}
	until(t, func() bool {
		done := true
		for i := 1; i < len(ns); i++ {
			for sent[i] < each && es[i].AMUint64(1, uint64(i)<<32|sent[i], 0) == ucs.OK {
				sent[i]++
			}
			done = done && next[i] == each
		}
		return done
	}, ns...)
	require.Empty(t, to.fails)
	require.Equal(t, senders, to.ActiveEndpoints())
	for i := 1; i < len(ns); i++ {
		es[i].Close()
	}
	until(t, func() bool { return len(to.fails) == senders }, ns...)
	require.Zero(t, to.ActiveEndpoints())
	until(t, func() bool { return to.sees(func() bool { return len(to.peersByName) == 0 }) }, ns...)
}

// heap is how many bytes are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestManyPeers: one interface exchanges messages with more than it has memory for
// messages, and a peer takes little memory.
func TestManyPeers(t *testing.T) {
	peers := 50
	if os.Getenv("GOUCX_TEST_LONG") != "" {
		peers = 1000
	}
	ns := nodesWith(t, inproc(), peers+2, settingsOf(t, "UCX_UD_RX_QUEUE_LEN=64", "UCX_UD_TX_QUEUE_LEN=32"))
	for _, n := range ns {
		n.got = make([]uint64, 0, 4*peers)
	}
	meetAll(t, ns[1], ns[2:]) // queues and maps have grown now
	before := heap()
	out, in := meetAll(t, ns[0], ns[2:])
	per := float64(heap()-before) / float64(peers)
	t.Logf("%.0f bytes a peer, both ends and directions", per)
	assert.Less(t, per, 8000.0)
	require.True(t, ns[0].sees(func() bool { return int(ns[0].rxConns.Load()) == peers }))
	require.Empty(t, ns[0].fails)
	runtime.KeepAlive(out)
	runtime.KeepAlive(in)
}

// meetAll has a and each of ns send each other a message.
func meetAll(t *testing.T, a *node, ns []*node) (out, in []*endpoint) {
	had := len(ns[0].got)
	sentOut, sentIn := make([]bool, len(ns)), make([]bool, len(ns))
	for _, n := range ns {
		out, in = append(out, connect(t, a, n)), append(in, connect(t, n, a))
	}
	all := append([]*node{a}, ns...)
	until(t, func() bool {
		done := len(a.got) == len(ns)
		for i, n := range ns {
			sentOut[i] = sentOut[i] || out[i].AMUint64(1, 0, 0) == ucs.OK
			sentIn[i] = sentIn[i] || in[i].AMUint64(1, 0, 0) == ucs.OK
			done = done && len(n.got) == had+1 && a.sees(out[i].s.Quiescent) && n.sees(in[i].s.Quiescent)
		}
		return done
	}, all...)
	return out, in
}

// TestUnusedEndpoints: those that never send say nothing and need little.
func TestUnusedEndpoints(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	posted := a.posts()
	before := heap()
	const n = 10_000
	es := make([]*endpoint, n)
	for i := range es {
		es[i] = connect(t, a, b)
	}
	per := float64(heap()-before) / n
	t.Logf("%.0f bytes an endpoint", per)
	assert.Less(t, per, 700.0)
	for range 100 {
		a.Progress(64)
	}
	require.Equal(t, posted, a.posts())
	for _, e := range es {
		e.Close()
	}
	require.Equal(t, posted, a.posts())
	require.True(t, a.sees(func() bool { return len(a.peersByName) == 0 }))
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		v    any
		most uintptr
	}{{endpoint{}, 256}, {arq.Sender{}, 224}, {arq.Receiver{}, 96}, {peer{}, 152}} {
		typ := reflect.TypeOf(c.v)
		assert.LessOrEqual(t, typ.Size(), c.most, typ.String())
	}
}
