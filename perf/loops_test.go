package perf

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/transports"
)

// alone sets a test up within this process, over transport for UCT ones.
func alone(t testing.TB, p Params) (kernel, *stamps) {
	t.Helper()
	require.NoError(t, p.Check())
	row, err := Lookup(p.Test)
	require.NoError(t, err)
	c := &Config{Providers: transports.All()}
	k, err := open(c, rte.Loop{}, &p, row)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.close()) })
	return k, newStamps(c, &p, row)
}

// variants are the loops: every carried test, UCT ones in each layout, streams
// with and without a stamp each.
func variants() map[string]Params {
	m := map[string]Params{}
	for _, row := range Tests() {
		p := Defaults()
		p.Test, p.Transport = row.Name, "shm"
		switch {
		case row.Later:
			continue
		case row.API == UCP:
			m[row.Name] = p
		default:
			for _, l := range []Layout{Short, Bcopy, Zcopy} {
				p.Layout = l
				m[row.Name+"_"+string(l)] = p
			}
		}
		if row.Pattern != PingPong {
			p.Layout, p.StampEach = Short, true
			m[row.Name+"_each"] = p
		}
	}
	p := Defaults()
	p.Test, p.Registered = "tag_lat", true
	m["tag_lat_registered"] = p
	return m
}

// No loop allocates per message.
func TestGateLoopsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	for name, p := range variants() {
		t.Run(name, func(t *testing.T) {
			k, st := alone(t, p)
			st.begin(false)
			require.NoError(t, k.active(2000, st))
			const n = 20_000
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.NoError(t, k.active(n, st))
			runtime.ReadMemStats(&after)
			assert.Less(t, after.Mallocs-before.Mallocs, uint64(n/1000), "in %d messages", n)
		})
	}
}

// A run from end to end: the row, the quantiles, the counts.
func TestRunAlone(t *testing.T) {
	for name, p := range variants() {
		t.Run(name, func(t *testing.T) {
			p.Iterations, p.Warmup = 1000, 50
			var rows []Report
			r, err := Run(Config{Providers: transports.All(), Rows: func(r Report) { rows = append(rows, r) }}, rte.Loop{}, p)
			require.NoError(t, err)
			require.Len(t, rows, 1)
			assert.Equal(t, rows[0], r.Last)
			assert.True(t, r.Last.Final)
			assert.Equal(t, int64(1000), r.Last.Iterations)
			assert.Positive(t, r.Last.LatencyTotal)
			assert.Positive(t, r.Last.MessagesTotal)
			assert.Positive(t, r.Last.Percentile)
			want := int64(1000)
			if r.Test.Pattern != PingPong && !p.StampEach {
				assert.Equal(t, streamStride, r.StampEvery)
				want = 1000 / streamStride
			}
			assert.Equal(t, want, r.Samples)
			assert.LessOrEqual(t, r.P50, r.P99)
			assert.LessOrEqual(t, r.P999, r.Max*1.01)
		})
	}
}

func TestRunRefuses(t *testing.T) {
	p := Defaults()
	p.Test = "stream_lat"
	_, err := Run(Config{Providers: transports.All()}, rte.Loop{}, p)
	require.ErrorIs(t, err, ErrLater)
	p.Test, p.Transport, p.Sizes = "am_lat", "shm", []int64{1 << 30}
	_, err = Run(Config{Providers: transports.All()}, rte.Loop{}, p)
	require.ErrorContains(t, err, "set up am_lat: message size (1073741824) is larger than max supported")
}

// BenchmarkRun is each loop within one process, where a message costs the
// software alone.
func BenchmarkRun(b *testing.B) {
	for name, p := range variants() {
		b.Run(name, func(b *testing.B) {
			k, st := alone(b, p)
			st.begin(false)
			require.NoError(b, k.active(2000, st))
			b.ReportAllocs()
			b.ResetTimer()
			require.NoError(b, k.active(int64(b.N), st))
		})
	}
}
