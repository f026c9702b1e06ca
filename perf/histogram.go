package perf

import (
	"math/bits"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// subBits is the precision of the buckets: 2^subBits for each power of two, so that a value is
// known to within 0.8 %.
const subBits = 7

// buckets counts values in buckets whose width grows with the value. Counting costs a shift and an
// increment. The HDR histogram is built from the counts at the end.
type buckets [(64 - subBits + 1) << subBits]uint64

// add counts v.
//
//hot:bench BenchmarkTick
func (b *buckets) add(v uint64) {
	e := uint(max(bits.Len64(v), subBits+1)) - (subBits + 1)
	b[e<<subBits+uint(v>>e)]++
}

// merge adds the counts of o.
func (b *buckets) merge(o *buckets) {
	for i, n := range o {
		b[i] += n
	}
}

// span returns the range of values in bucket i, from low up to below high.
func span(i int) (low, high uint64) {
	e := uint(max(i>>subBits, 1)) - 1
	m := uint64(i) - uint64(e)<<subBits
	return m << e, (m + 1) << e
}

// quantiles builds an HDR histogram in nanoseconds with three significant digits; a counted unit
// is scale ns.
func (b *buckets) quantiles(scale float64) Quantiles {
	const digits, unit = 3, 10 // in tenths of a nanosecond
	h := hdr.New(1, 1<<50, digits)
	var top uint64
	for i, n := range b {
		if n == 0 {
			continue
		}
		low, high := span(i)
		middle := float64(low) + float64(high-low-1)/2
		v := min(int64(middle*scale*unit), h.HighestTrackableValue())
		_ = h.RecordValues(v, int64(n)) // within range: see the line above
		top = high - 1
	}
	q := func(p float64) float64 { return float64(h.ValueAtPercentile(p)) / unit }
	return Quantiles{
		P50: q(50), P99: q(99), P999: q(99.9),
		Max: float64(top) * scale, Samples: h.TotalCount(),
	}
}
