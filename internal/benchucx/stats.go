package main

import (
	"math"
	"slices"
)

// coverage is the required probability that an interval contains the true median.
const coverage = 0.95

// median returns the median of at least one number.
func median(xs []float64) float64 {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// interval is a confidence interval for the median of the distribution of xs.
type interval struct {
	lo, hi float64
	// covers is the probability that the interval contains the median. It is below coverage if
	// there are too few numbers.
	covers float64
}

// medianInterval returns the narrowest pair of order statistics, at equal distance from both ends,
// that covers the median with the required probability. If there is none, it returns the extremes.
// It assumes nothing about the distribution: the number of draws below the median is binomial(n,
// 1/2).
func medianInterval(xs []float64) interval {
	s := slices.Sorted(slices.Values(xs))
	n := len(s)
	below := math.Exp2(-float64(n)) // probability of at most k draws below the median
	term := below
	best := interval{s[0], s[n-1], 1 - 2*below}
	for k := 1; k < (n+1)/2; k++ {
		term *= float64(n-k+1) / float64(k)
		below += term
		if 1-2*below < coverage {
			break
		}
		best = interval{s[k], s[n-1-k], 1 - 2*below}
	}
	return best
}

// slack is how far the interval's worse end may miss a must that the median meets.
const slack = 0.1

// holds reports whether a must on the ratio holds: the median meets it, and the worse end of the
// interval is within slack of it.
func (v variant) holds(m metric, mid float64, i interval) bool {
	if m == latency {
		return mid <= v.must && i.hi <= v.must*(1+slack)
	}
	return mid >= v.must && i.lo >= v.must*(1-slack)
}

// reaches reports whether the median meets the aim.
func (v variant) reaches(m metric, mid float64) bool {
	if m == latency {
		return mid <= v.aim
	}
	return mid >= v.aim
}
