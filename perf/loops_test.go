package perf

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/perf/rte"
	"github.com/goucx/goucx/transports"
	"github.com/goucx/goucx/ucs"
	"github.com/goucx/goucx/verbs/soft"
)

// alone sets a test up within this process, over transport for UCT ones.
func alone(t testing.TB, p Params) (kernel, *stamps) {
	t.Helper()
	require.NoError(t, p.Check())
	row, err := Lookup(p.Test)
	require.NoError(t, err)
	c := &Config{Providers: transports.All(), Verbs: soft.New(soft.Config{Link: soft.LinkInproc})}
	k, err := open(c, newLink(&Config{}, rte.Loop{}), &p, row)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, k.close()) })
	return k, newStamps(c, &p, row)
}

// variants are the loops: every carried test, UCT ones in each layout, streams
// with and without a stamp each, and what options make of them.
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
		case row.API == Verbs:
			m[row.Name] = p
			p.Layout = Zcopy
			m[row.Name+"_zcopy"] = p
			if row.Pattern == Stream {
				p.PostList, p.Layout = 7, Short
				m[row.Name+"_lists"] = p
				p.PostList = 0
			}
		default:
			for _, l := range []Layout{Short, Bcopy, Zcopy} {
				p.Layout = l
				m[row.Name+"_"+string(l)] = p
			}
		}
		if row.Pattern != PingPong && row.Op != OpSharedPut {
			p.Layout, p.StampEach = Short, true
			m[row.Name+"_each"] = p
		}
	}
	for name, set := range map[string]func(*Params){
		"tag_lat_sharing":         func(p *Params) { p.Test, p.Sharing = "tag_lat", "dynamic" },
		"tag_bw_sharing":          func(p *Params) { p.Test, p.Sharing = "tag_bw", "dynamic" },
		"ucp_am_lat_sharing":      func(p *Params) { p.Test, p.Sharing = "ucp_am_lat", "dynamic" },
		"ucp_put_bw_sharing":      func(p *Params) { p.Test, p.Sharing = "ucp_put_bw", "dynamic" },
		"ucp_fadd_sharing":        func(p *Params) { p.Test, p.Sharing = "ucp_fadd", "dynamic" },
		"tag_lat_registered":      func(p *Params) { p.Test, p.Registered = "tag_lat", true },
		"ucp_am_lat_header":       func(p *Params) { p.Test, p.AMHeader, p.AMCopy = "ucp_am_lat", 16, true },
		"ucp_am_lat_checked":      func(p *Params) { p.Test, p.AMHeader, p.Validate = "ucp_am_lat", 3, true },
		"tag_lat_unexpected":      func(p *Params) { p.Test, p.Unexpected = "tag_lat", true },
		"tag_bw_unexpected":       func(p *Params) { p.Test, p.Unexpected = "tag_bw", true },
		"tag_lat_asleep":          func(p *Params) { p.Test, p.Sleep = "tag_lat", true },
		"ucp_am_lat_asleep":       func(p *Params) { p.Test, p.Sleep = "ucp_am_lat", true },
		"ucp_put_lat_asleep":      func(p *Params) { p.Test, p.Sleep = "ucp_put_lat", true },
		"tag_sync_lat_checked":    func(p *Params) { p.Test, p.Validate = "tag_sync_lat", true },
		"verbs_send_lat_checked":  func(p *Params) { p.Test, p.Validate, p.Sizes = "verbs_send_lat", true, []int64{10_000} },
		"verbs_write_lat_checked": func(p *Params) { p.Test, p.Validate, p.Sizes = "verbs_write_lat", true, []int64{10_000} },
		"verbs_ud_lat_checked":    func(p *Params) { p.Test, p.Validate, p.Sizes = "verbs_ud_send_lat", true, []int64{1000} },
		"verbs_write_pieces":      func(p *Params) { p.Test, p.Layout, p.Sizes, p.Stride = "verbs_write_lat", Zcopy, []int64{1, 16, 3}, 20 },
		"ucp_am_bw_registered":    func(p *Params) { p.Test, p.Registered = "ucp_am_bw", true },
	} {
		p := Defaults()
		set(&p)
		m[name] = p
	}
	return m
}

// Threads of one side: each has its rows, the last row is of all.
func TestRunThreads(t *testing.T) {
	for _, name := range []string{"tag_lat", "tag_bw", "ucp_put_bw", "ucp_am_lat", "ucp_fadd"} {
		for _, policy := range []string{"", "dynamic", "mpi-threads"} {
			t.Run(strings.TrimSpace(name+" "+policy), func(t *testing.T) { runThreads(t, name, policy) })
		}
	}
}

func runThreads(t *testing.T, name, policy string) {
	n := int64(3000)
	if policy != "" {
		n = 640 // in less time
	}
	p := Defaults()
	p.Test, p.Sharing, p.ThreadCount, p.Threads, p.Iterations, p.Warmup = name, policy, 3, "multi", n, 50
	threads := map[int]bool{}
	var last Report
	finals := 0
	c := Config{Providers: transports.All(), Interval: 1, Rows: func(r Report) { // one at a time, says the race detector
		if last = r; r.Final {
			finals++
		} else {
			threads[r.Thread] = true
		}
	}}
	r, err := Run(c, rte.Loop{}, p)
	require.NoError(t, err)
	assert.Len(t, threads, 3)
	assert.Equal(t, 1, finals)
	assert.Equal(t, last, r.Last)
	assert.True(t, last.Sum)
	assert.Equal(t, n, last.Iterations, "of each thread")
	assert.Zero(t, last.Percentile)
	assert.Positive(t, last.LatencyTotal)
	assert.InEpsilon(t, last.MessagesTotal*float64(p.Size()), last.BytesTotal, 1e-6)
	assert.Equal(t, 3*(n/int64(r.StampEvery)), r.Samples)
}

// Threads that run one after the other have the rate of both, not the sum of their own.
func TestSum(t *testing.T) {
	st := func(start ucs.Time, elapsed time.Duration, messages float64) *stamps {
		return &stamps{start: start, bytes: 8, final: Report{Final: true, Iterations: 7, Percentile: 1, LatencyMoment: 1, LatencyTotal: elapsed.Seconds(), MessagesTotal: messages, Elapsed: elapsed}}
	}
	assert.Equal(t, Report{Final: true, Sum: true, Iterations: 7, LatencyTotal: 2, BytesTotal: 8 * 2.8, MessagesTotal: 2.8, Elapsed: 5 * time.Second},
		sum([]*stamps{st(ucs.Time(2*time.Second), 3*time.Second, 4), st(ucs.Time(time.Second), time.Second, 2), st(ucs.Time(4*time.Second), 2*time.Second, 0)}))
}

// Of several threads the interrupted result is that of those which have taken a stamp.
func TestInterruptedBeforeEveryThreadRan(t *testing.T) {
	tag, err := Lookup("tag_lat")
	require.NoError(t, err)
	p := Defaults()
	p.Test, p.ThreadCount = "tag_lat", 2
	for _, ran := range []int{0, 1, 2} {
		interrupt := make(chan struct{})
		close(interrupt)
		var rows []Report
		m := &team{g: rte.Loop{}, p: &p, test: tag, interrupt: interrupt, sink: func(r Report) { rows = append(rows, r) }}
		for i := range 2 {
			st := newStamps(&Config{}, &p, tag)
			st.begin(true)
			if i >= 2-ran {
				st.tick()
			}
			m.add(&stuck{}, st, nil)
		}
		r, err := m.interrupted(nil)
		require.ErrorIs(t, err, ErrInterrupted)
		if ran == 0 {
			assert.Nil(t, r)
			continue
		}
		assert.Equal(t, []Report{r.Last}, rows)
		assert.Equal(t, int64(ran), r.Samples)
		assert.True(t, r.Last.Sum)
		assert.Positive(t, r.Last.MessagesTotal)
		assert.False(t, math.IsInf(r.Last.MessagesTotal+r.Last.LatencyTotal, 0))
	}
}

// stuck is a kernel that waits until its link ends, or fails at once.
type stuck struct {
	l   *link
	err error
}

func (k *stuck) active(int64, *stamps) error {
	if k.err != nil {
		return k.err
	}
	<-k.l.Done()
	return k.l.Err()
}

func (k *stuck) passive(n int64) error { return k.active(n, nil) }
func (k *stuck) progress()             {}
func (k *stuck) transports() string    { return "" }
func (k *stuck) close() error          { return nil }

// What ends one thread ends them all, and the first reason is told.
func TestThreadsEndTogether(t *testing.T) {
	wrong := errors.New("went wrong")
	for name, tc := range map[string]struct {
		group  Group
		second error
	}{
		"a thread fails":      {rte.Loop{}, wrong},
		"the other side dies": {&brokenGroup{Group: rte.Loop{}, err: wrong}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m := &team{g: tc.group, p: &Params{ThreadCount: 2}}
			for _, err := range []error{nil, tc.second} {
				l := newLink(&Config{}, tc.group)
				m.add(&stuck{l, err}, newScratch(), l)
			}
			require.ErrorIs(t, m.phase(1, false), wrong)
		})
	}
}

// No loop allocates per message.
func TestGateLoopsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("allocations are not the product's under the race detector")
	}
	for name, p := range variants() {
		t.Run(name, func(t *testing.T) {
			k, st := alone(t, p)
			allocatesNothing(t, k, st)
		})
	}
}

func allocatesNothing(t *testing.T, k kernel, st *stamps) {
	t.Helper()
	st.begin(false)
	require.NoError(t, k.active(2000, st))
	const n = 20_000
	least := uint64(n)
	for range 8 { // connections grow at first, which takes memory each time
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, k.active(n, st))
		runtime.ReadMemStats(&after)
		if least = min(least, after.Mallocs-before.Mallocs); least < n/200 {
			break
		}
	}
	assert.Less(t, least, uint64(n/200), "in %d messages", n)
}

// A run from end to end: the row, the quantiles, the counts.
func TestRunAlone(t *testing.T) {
	for name, p := range variants() {
		t.Run(name, func(t *testing.T) {
			p.Iterations, p.Warmup = 1000, 50
			var rows []Report
			c := Config{Providers: transports.All(), Verbs: soft.New(soft.Config{Link: soft.LinkInproc}), Interval: time.Hour, Rows: func(r Report) { rows = append(rows, r) }}
			r, err := Run(c, rte.Loop{}, p)
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
	require.ErrorIs(t, err, ErrNotSupportedYet)
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
