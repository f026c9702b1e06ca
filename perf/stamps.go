package perf

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/goucx/goucx/ucs"
)

// ringLen is the number of stamps in a percentile, as in UCX.
const ringLen = 2048

// streamStride is the number of messages per stamp in a stream.
const streamStride = 64

// stamps is the clock of a run: a ring of the last stamps, a histogram of all stamps, and the time
// when the next row is due. It is owned by the measuring goroutine.
type stamps struct {
	ring [ringLen]uint64 // cycles between stamps
	n    uint64          // number of stamps
	prev uint64          // the last stamp
	mark uint64          // when the last row was printed
	due  uint64          // cycles between rows
	hist buckets

	every    int64 // messages per stamp
	thread   int
	lean     bool  // hist is filled from the ring at each row
	bytes    int64 // bytes per message
	factor   float64
	rank     float64
	interval time.Duration
	scale    float64 // nanoseconds per cycle
	start    ucs.Time
	last     moment
	final    Report
	sink     func(Report)
	// interrupt is Config.Interrupt.
	interrupt <-chan struct{}
}

// errReported is the value of the panic by which report ends a measured loop: the loops have no
// result to check where they take a stamp. phase recovers it.
var errReported any = errors.New("interrupted at a report")

func newStamps(c *Config, p *Params, t Test) *stamps {
	every := p.StampStride(t)
	st := &stamps{
		scale: cycleNanos(), every: every, lean: every == 1 && t.Pattern != PingPong && t.Op != OpSharedPut,
		bytes: p.Size(), factor: 1, rank: p.Rank, interval: c.Interval, sink: c.Rows, interrupt: c.Interrupt,
	}
	if st.interval == 0 {
		st.interval = time.Second
	}
	if t.Pattern == PingPong {
		st.factor = 2
	}
	return st
}

// begin starts the clock; without measure no row becomes due.
func (s *stamps) begin(measure bool) {
	s.due = ^uint64(0)
	if measure {
		// Between the rows of a long interval report looks for an interruption each second.
		looks := max(1, math.Ceil(s.interval.Seconds()))
		s.due = uint64(float64(s.interval) / looks / s.scale)
		clear(s.hist[:])
	}
	s.n, s.last = 0, moment{}
	s.start = ucs.Now()
	s.prev = cycles()
	s.mark = s.prev
}

// newScratch returns the clock of a side that measures nothing.
func newScratch() *stamps { return &stamps{due: ^uint64(0), every: 1} }

// restamp makes the next stamp count from now.
func (s *stamps) restamp() { s.prev = cycles() }

// tick takes a stamp.
//
//hot:bench BenchmarkTick
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

// tickEach is tick without the histogram. It is used in the loops that stamp every message of a
// stream, where each instruction counts.
//
//hot:bench BenchmarkTickEach
func (s *stamps) tickEach() {
	t := cycles()
	s.ring[s.n%ringLen] = t - s.prev
	s.n++
	s.prev = t
	if t-s.mark >= s.due {
		s.report()
	}
}

// report passes a row to the sink if one is due, or ends the loop after an interruption.
//
//go:noinline
func (s *stamps) report() {
	select {
	case <-s.interrupt:
		panic(errReported)
	default:
	}
	now := moment{ucs.Now().Sub(s.start), int64(s.n) * s.every}
	if now.at-s.last.at >= s.interval-s.interval/100 { // the two clocks differ a little
		s.emit(now, false)
	}
	s.mark = cycles()
}

// end stops the clock after n messages and computes the last row.
func (s *stamps) end(n int64) {
	now := moment{ucs.Now().Sub(s.start), n}
	if now.at <= s.last.at {
		now.at = s.last.at + 1 // the clock did not advance: add a nanosecond, so that rates are finite
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

// recent returns the stamps in the ring.
func (s *stamps) recent() []uint64 { return s.ring[:min(s.n, ringLen)] }

// percentile returns the value in the ring below which rank percent of the stamps lie.
func (s *stamps) percentile() uint64 {
	ds := slices.Clone(s.recent())
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	i := int(float64(len(ds)) * s.rank / 100)
	return ds[min(i, len(ds)-1)]
}

// quantiles returns the quantiles of all stamps.
func (s *stamps) quantiles() Quantiles {
	return s.hist.quantiles(s.scale / s.factor / float64(s.every))
}
