package perf

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/ucs"
)

// The arithmetic of UCX's rows: 1,000 ping-pongs in a millisecond, then 3,000.
func TestRow(t *testing.T) {
	first := moment{time.Millisecond, 1000}
	r := row(moment{}, first, 8, 2)
	assert.InDelta(t, 500, r.LatencyMoment, 1e-6)
	assert.InDelta(t, 500, r.LatencyTotal, 1e-6)
	assert.InDelta(t, 2e6, r.MessagesTotal, 1e-3)
	assert.InDelta(t, 16e6, r.BytesTotal, 1e-3)
	r = row(first, moment{2 * time.Millisecond, 4000}, 8, 2)
	assert.InDelta(t, 1e6/3000/2, r.LatencyMoment, 1e-6)
	assert.InDelta(t, 250, r.LatencyTotal, 1e-6)
	assert.InDelta(t, 6e6, r.MessagesMoment, 1e-3)
	assert.InDelta(t, 4e6, r.MessagesTotal, 1e-3)
	assert.Equal(t, int64(4000), r.Iterations)
	assert.Equal(t, 2*time.Millisecond, r.Elapsed)
	r = row(first, moment{3 * time.Millisecond, 1000}, 8, 2)
	assert.Zero(t, r.LatencyMoment, "of no messages since the last row")
	assert.Zero(t, r.MessagesMoment)
	stream := row(moment{}, first, 8, 1)
	assert.InDelta(t, 1e6, stream.MessagesTotal, 1e-3)
	assert.InDelta(t, 1000, stream.LatencyTotal, 1e-6)
}

func TestPercentile(t *testing.T) {
	s := newScratch()
	s.rank = 50
	assert.Zero(t, s.percentile(), "no stamps")
	for i := range uint64(100) {
		s.ring[i] = 100 - i
	}
	s.n = 100
	for rank, want := range map[float64]uint64{0: 1, 50: 51, 99: 100, 99.9: 100, 100: 100} {
		s.rank = rank
		assert.Equal(t, want, s.percentile(), "rank %v", rank)
	}
	s.n = ringLen + 5 // a full ring counts whole
	assert.Len(t, s.recent(), ringLen)
	assert.Equal(t, uint64(100), s.ring[0], "the ring keeps its order")
}

// Ticks fill the ring and the histogram, and fall due by the clock alone.
func TestTicks(t *testing.T) {
	var rows []Report
	tag, err := Lookup("tag_bw")
	require.NoError(t, err)
	p := Defaults()
	s := newStamps(&Config{Rows: func(r Report) { rows = append(rows, r) }, Interval: time.Hour}, &p, tag)
	s.begin(true)
	for range 3 * ringLen {
		s.tick()
	}
	s.end(3 * ringLen * streamStride)
	require.Len(t, rows, 1)
	assert.True(t, rows[0].Final)
	assert.Equal(t, int64(3*ringLen*streamStride), rows[0].Iterations)
	assert.Equal(t, rows[0], s.final)
	assert.Equal(t, int64(3*ringLen), s.quantiles().Samples)

	rows = nil
	s.interval = 1
	s.begin(true)
	for range 5 {
		for last := ucs.Now(); ucs.Now() == last; { // the clock of some processors advances in steps
		}
		s.tick()
	}
	s.end(5 * streamStride)
	require.Len(t, rows, 6)
	for i, r := range rows[:5] {
		assert.False(t, r.Final)
		assert.Equal(t, int64(i+1)*streamStride, r.Iterations)
		assert.Positive(t, r.Percentile)
	}

	rows = nil
	s.begin(false) // a warm-up prints nothing
	for range 5 {
		s.tick()
	}
	assert.Empty(t, rows)
}

// Between the rows of a long interval an interruption is looked for each second.
func TestInterruptBetweenRows(t *testing.T) {
	tag, err := Lookup("tag_bw")
	require.NoError(t, err)
	p, rows, interrupt := Defaults(), 0, make(chan struct{})
	s := newStamps(&Config{Rows: func(Report) { rows++ }, Interval: 90 * time.Minute, Interrupt: interrupt}, &p, tag)
	s.begin(true)
	assert.InEpsilon(t, float64(time.Second), float64(s.due)*s.scale, 0.01)
	s.report()
	assert.Zero(t, rows)
	close(interrupt)
	assert.PanicsWithValue(t, errReported, s.report)
}

// With a stamp each, the histogram is filled from the ring at each row.
func TestLeanTicks(t *testing.T) {
	put, err := Lookup("put_bw")
	require.NoError(t, err)
	p := Defaults()
	assert.Equal(t, int64(64), p.StampStride(put))
	p.Iterations = 63
	assert.Equal(t, int64(1), p.StampStride(put), "fewer messages than a stride would have no stamp")
	p.Iterations, p.Sizes = 0, []int64{largeMessage - 1}
	assert.Equal(t, int64(64), p.StampStride(put))
	p.Sizes = []int64{largeMessage}
	assert.Equal(t, int64(1), p.StampStride(put), "64 large messages may take longer than the time between rows")
	p.Sizes, p.StampEach = []int64{8}, true
	s := newStamps(&Config{}, &p, put)
	assert.Equal(t, int64(1), s.every)
	s.begin(true)
	for range 100 {
		s.tickEach()
	}
	assert.Zero(t, s.hist.quantiles(1).Samples)
	s.end(100)
	assert.Equal(t, int64(100), s.quantiles().Samples)
	assert.InDelta(t, s.final.Percentile, s.quantiles().P50, s.final.Percentile*0.05+1)
}

func TestBuckets(t *testing.T) {
	for _, v := range []uint64{0, 1, 127, 128, 255, 256, 257, 511, 512, 1e6, 1 << 40, 1<<63 + 12345, ^uint64(0)} {
		var b buckets
		b.add(v)
		i := slices.Index(b[:], 1)
		low, high := span(i)
		assert.LessOrEqual(t, low, v)
		assert.LessOrEqual(t, v, high-1)
		assert.LessOrEqual(t, high-1-low, max(v>>subBits, 1), "%d is known to within 1 in %d", v, 1<<subBits)
	}
}

// Quantiles against the sorted values themselves.
func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var b buckets
	var all []float64
	for range 200_000 {
		v := uint64(400 + r.ExpFloat64()*300)
		b.add(v)
		all = append(all, float64(v)/2)
	}
	slices.Sort(all)
	q := b.quantiles(0.5)
	at := func(f float64) float64 { return all[int(f*float64(len(all)))] }
	assert.InEpsilon(t, at(0.50), q.P50, 0.01)
	assert.InEpsilon(t, at(0.99), q.P99, 0.01)
	assert.InEpsilon(t, at(0.999), q.P999, 0.01)
	assert.InEpsilon(t, all[len(all)-1], q.Max, 0.01)
	assert.Equal(t, int64(200_000), q.Samples)
	assert.Zero(t, new(buckets).quantiles(1).Samples)
}

type brokenGroup struct {
	Group
	looks int
	err   error
}

func (g *brokenGroup) Err() error { g.looks++; return g.err }

// A link looks rarely, keeps the failure, and is a well-behaved context.
func TestLink(t *testing.T) {
	g := &brokenGroup{}
	l := newLink(&Config{}, g)
	for range 10 * linkPeriod {
		require.NoError(t, l.Err())
	}
	assert.Equal(t, 10, g.looks)
	select {
	case <-l.Done():
		t.Fatal("done without a failure")
	default:
	}
	g.err = errors.New("gone")
	for range linkPeriod {
		_ = l.Err()
	}
	require.EqualError(t, l.Err(), "gone")
	<-l.Done()
	_ = l.check()
	assert.Equal(t, 11, g.looks, "asked no more once it failed")
	_, bounded := l.Deadline()
	assert.False(t, bounded)
	assert.Nil(t, l.Value("key"))
}

// A watched link never looks; who waits for it is told.
func TestLinkWatched(t *testing.T) {
	g := &brokenGroup{err: errors.New("not asked")}
	l := newLink(&Config{}, g)
	l.watched = true
	woken := make(chan struct{})
	ctx, cancel := context.WithCancel(l) // finds AfterFunc
	defer cancel()
	context.AfterFunc(ctx, func() { close(woken) })
	stop := l.AfterFunc(func() { t.Error("stopped before") })
	assert.True(t, stop())
	assert.False(t, stop())
	for range 10 * linkPeriod {
		require.NoError(t, l.Err())
	}
	gone := errors.New("gone")
	l.fail(gone)
	l.fail(errors.New("late"))
	<-woken
	<-l.Done()
	require.ErrorIs(t, l.Err(), gone)
	require.ErrorIs(t, context.Cause(ctx), gone)
	late := make(chan struct{})
	assert.False(t, l.AfterFunc(func() { close(late) })())
	<-late
	assert.Zero(t, g.looks)
}

func TestLastByte(t *testing.T) {
	for size := int64(1); size <= 40; size++ {
		b := make([]byte, padded(size))
		l := newLastByte(b, size)
		for i := range b {
			clear(b)
			b[i] = 0xa5
			assert.Equal(t, int64(i) == size-1, l.is(0xa5), "size %d byte %d", size, i)
		}
	}
}

func TestPattern(t *testing.T) {
	b := make([]byte, 300)
	fill(b, 7)
	assert.Equal(t, -1, check(b, 7))
	assert.Equal(t, 0, check(b, 8))
	b[299]++
	assert.Equal(t, 299, check(b, 7))
	require.NoError(t, awaitPattern(b, 7, func() error { return nil }), "the last byte is the number")
	b[5]++
	require.ErrorContains(t, awaitPattern(b, 7, func() error { return nil }), "wrong at byte 5")
	stop := errors.New("stop")
	require.ErrorIs(t, awaitPattern(b, 7, func() error { return stop }), stop)
}

func BenchmarkTick(b *testing.B) {
	s := newScratch()
	b.ReportAllocs()
	for b.Loop() {
		s.tick()
	}
}

func BenchmarkTickEach(b *testing.B) {
	s := newScratch()
	b.ReportAllocs()
	for b.Loop() {
		s.tickEach()
	}
}
