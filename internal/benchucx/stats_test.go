package main

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestMedian(t *testing.T) {
	assert.InDelta(t, 3, median([]float64{3}), 0)
	assert.InDelta(t, 2.5, median([]float64{4, 1, 2, 3}), 0)
	xs := []float64{9, 1, 5}
	assert.InDelta(t, 5, median(xs), 0)
	assert.Equal(t, []float64{9, 1, 5}, xs, "the order of the pairs stays")
}

// TestIntervalRanks holds the ranks to the tables of the sign test.
func TestIntervalRanks(t *testing.T) {
	for _, c := range []struct {
		n, lo, hi int // ranks from 1
		covers    float64
	}{
		{1, 1, 1, 0},
		{3, 1, 3, 0.75},
		{5, 1, 5, 0.9375},
		{6, 1, 6, 0.96875},
		{9, 2, 8, 0.9609},
		{11, 2, 10, 0.9883},
		{12, 3, 10, 0.9614},
		{25, 8, 18, 0.9567},
		{101, 41, 61, 0.9540},
	} {
		xs := make([]float64, c.n)
		for i := range xs {
			xs[i] = float64(c.n - i) // ranks, in descending order
		}
		i := medianInterval(xs)
		assert.Equal(t, [2]float64{float64(c.lo), float64(c.hi)}, [2]float64{i.lo, i.hi}, "n=%d", c.n)
		assert.InDelta(t, c.covers, i.covers, 0.0001, "n=%d", c.n)
	}
}

// TestIntervalCovers draws from a skewed distribution of known median.
func TestIntervalCovers(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const draws, trials, trueMedian = 11, 4000, math.Ln2
	held := 0
	for range trials {
		xs := make([]float64, draws)
		for i := range xs {
			xs[i] = r.ExpFloat64()
		}
		if i := medianInterval(xs); i.lo <= trueMedian && trueMedian <= i.hi {
			held++
		}
	}
	assert.InDelta(t, 0.9883, float64(held)/trials, 0.01)
}

func TestHolds(t *testing.T) {
	less, more := variant{must: 0.65, aim: 0.52}, variant{must: 3, aim: 5}
	for _, c := range []struct {
		name   string
		v      variant
		m      metric
		mid    float64
		lo, hi float64
		holds  bool
	}{
		{"latency met", less, latency, 0.6, 0.5, 0.64, true},
		{"latency met, a little noisy", less, latency, 0.65, 0.5, 0.71, true},
		{"latency met, too noisy", less, latency, 0.6, 0.5, 0.72, false},
		{"latency missed", less, latency, 0.66, 0.66, 0.66, false},
		{"rate met", more, rate, 3.5, 3.1, 9, true},
		{"rate met, a little noisy", more, rate, 3, 2.71, 9, true},
		{"rate met, too noisy", more, rate, 3.5, 2.69, 9, false},
		{"rate missed", more, rate, 2.99, 2.99, 2.99, false},
	} {
		assert.Equal(t, c.holds, c.v.holds(c.m, c.mid, interval{c.lo, c.hi, 1}), c.name)
	}
	assert.True(t, less.reaches(latency, 0.52))
	assert.False(t, less.reaches(latency, 0.53))
	assert.True(t, more.reaches(rate, 5))
	assert.False(t, more.reaches(rate, 4.9))
}
