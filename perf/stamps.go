package perf

import (
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// ringLen is the number of stamps that a percentile is taken of: UCX's.
const ringLen = 2048

// streamStride is the number of messages from stamp to stamp in a stream.
const streamStride = 64

// stamps is the clock of a run: a ring of the last stamps, a histogram of all
// of them, and the comparison that says when a row is due. The measuring
// goroutine owns it.
type stamps struct {
	ring [ringLen]uint64 // cycles from stamp to stamp
	n    uint64          // stamps taken
	prev uint64          // the last one
	mark uint64          // when the last row was printed
	due  uint64          // cycles from row to row
	hist buckets

	every  int64 // messages a stamp
	lean   bool  // hist is filled from the ring at each row
	bytes  int64 // a message
	factor float64
	rank   float64
	base   anchor
	start  ucs.Time
	last   moment
	sink   func(Report)
}

// anchor ties the cycle counter to the clock; the longer ago it was taken, the
// better the rate that follows from it.
type anchor struct {
	cycles uint64
	at     ucs.Time
}

func newAnchor() anchor { return anchor{cycles(), ucs.Now()} }

// nanos is the length of a cycle. It waits until the anchor is old enough to
// tell within a tenth of a percent.
func (a anchor) nanos() float64 {
	const old = time.Millisecond
	for {
		c, t := cycles(), ucs.Now()
		if t.Sub(a.at) >= old && c > a.cycles {
			return float64(t.Sub(a.at)) / float64(c-a.cycles)
		}
	}
}

// begin starts the clock.
func (s *stamps) begin(interval time.Duration) {
	s.due = uint64(float64(interval) / s.base.nanos())
	s.n, s.last = 0, moment{}
	s.start = ucs.Now()
	s.prev = cycles()
	s.mark = s.prev
}

// tick takes a stamp.
// hot: BenchmarkTick
func (s *stamps) tick() {
	t := cycles()
	d := t - s.prev
	s.prev = t
	s.ring[s.n%ringLen] = d
	s.n++
	s.hist.add(d)
	if t-s.mark >= s.due {
		s.report()
	}
}

// tickEach is tick without the histogram: it stands in the loops that stamp
// every message of a stream, where each instruction counts.
// hot: BenchmarkTickEach
func (s *stamps) tickEach() {
	t := cycles()
	s.ring[s.n%ringLen] = t - s.prev
	s.n++
	s.prev = t
	if t-s.mark >= s.due {
		s.report()
	}
}

// report hands a row to the sink.
//
//go:noinline
func (s *stamps) report() {
	now := moment{ucs.Now().Sub(s.start), int64(s.n) * s.every}
	s.emit(now, false)
	s.mark = cycles()
}

// end stops the clock after n messages and gives the last row.
func (s *stamps) end(n int64) Report {
	now := moment{ucs.Now().Sub(s.start), n}
	if now.at <= 0 {
		now.at = 1 // the clock did not move: one nanosecond, so that rates stay numbers
	}
	return s.emit(now, true)
}

func (s *stamps) emit(now moment, final bool) Report {
	r := row(s.last, now, s.bytes, s.factor)
	r.Final = final
	r.Percentile = float64(s.percentile()) * s.base.nanos() / s.factor / float64(s.every)
	if s.lean {
		for _, d := range s.recent() {
			s.hist.add(d)
		}
	}
	s.last = now
	s.sink(r)
	return r
}

// recent gives the stamps of the ring.
func (s *stamps) recent() []uint64 { return s.ring[:min(s.n, ringLen)] }

// percentile picks from the ring the value below which rank percent lie.
func (s *stamps) percentile() uint64 {
	ds := slices.Clone(s.recent())
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	i := int(float64(len(ds)) * s.rank / 100)
	return ds[min(i, len(ds)-1)]
}

// quantiles are of all stamps.
func (s *stamps) quantiles() Quantiles {
	return s.hist.quantiles(s.base.nanos() / s.factor / float64(s.every))
}
