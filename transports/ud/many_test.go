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
	until(t, func() bool { return to.sees(func() bool { return len(to.names) == 0 }) }, ns...)
}

// TestUnusedEndpoints: those that never send say nothing and need little.
func TestUnusedEndpoints(t *testing.T) {
	ns := nodes(t, inproc(), 2)
	a, b := ns[0], ns[1]
	posted := a.posts()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const n = 10_000
	es := make([]*endpoint, n)
	for i := range es {
		es[i] = connect(t, a, b)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	per := float64(after.HeapAlloc-before.HeapAlloc) / n
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
	require.True(t, a.sees(func() bool { return len(a.names) == 0 }))
}

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		v    any
		most uintptr
	}{{endpoint{}, 256}, {arq.Sender{}, 224}, {arq.Receiver{}, 96}, {peer{}, 144}} {
		typ := reflect.TypeOf(c.v)
		assert.LessOrEqual(t, typ.Size(), c.most, typ.String())
	}
}
