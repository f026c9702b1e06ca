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

	every    int64 // messages a stamp
	thread   int
	lean     bool  // hist is filled from the ring at each row
	bytes    int64 // a message
	factor   float64
	rank     float64
	interval time.Duration
	scale    float64 // nanoseconds a cycle
	start    ucs.Time
	last     moment
	final    Report
	sink     func(Report)
}

func newStamps(c *Config, p *Params, t Test) *stamps {
	st := &stamps{
		scale: cycleNanos(), every: 1, lean: p.StampEach && t.Pattern != PingPong,
		bytes: p.Size(), factor: 1, rank: p.Rank, interval: c.Interval, sink: c.Rows,
	}
	if st.interval == 0 {
		st.interval = time.Second
	}
	if t.Pattern == PingPong {
		st.factor = 2
	} else if !p.StampEach {
		st.every = streamStride
	}
	return st
}

// begin starts the clock; without measure no row ever falls due.
func (s *stamps) begin(measure bool) {
	s.due = ^uint64(0)
	if measure {
		s.due = uint64(float64(s.interval) / s.scale)
		clear(s.hist[:])
	}
	s.n, s.last = 0, moment{}
	s.start = ucs.Now()
	s.prev = cycles()
	s.mark = s.prev
}

// newScratch gives the clock of a side that measures nothing.
func newScratch() *stamps { return &stamps{due: ^uint64(0), every: 1} }

// restamp lets the next stamp count from now.
func (s *stamps) restamp() { s.prev = cycles() }

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

// end stops the clock after n messages and makes the last row.
func (s *stamps) end(n int64) {
	now := moment{ucs.Now().Sub(s.start), n}
	if now.at <= s.last.at {
		now.at = s.last.at + 1 // the clock did not move: a nanosecond, so that rates stay numbers
	}
	s.emit(now, true)
}

func (s *stamps) emit(now moment, final bool) {
	r := row(s.last, now, s.bytes, s.factor)
	r.Final, r.Thread = final, s.thread
	r.Percentile = float64(s.percentile()) * s.scale / s.factor / float64(s.every)
	if s.lean {
		for _, d := range s.recent() {
			s.hist.add(d)
		}
	}
	s.last = now
	if final {
		s.final = r
	}
	if s.sink != nil {
		s.sink(r)
	}
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
	return s.hist.quantiles(s.scale / s.factor / float64(s.every))
}
