package ucs

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestPace: work is due every 20 us to 4 ms of a loop that spins, and every millisecond or in every pass of slower ones.
func TestPace(t *testing.T) {
	const most = 512
	var p Pace
	now := Time(0)
	// loop makes passes until the work was due n times, and returns the last interval.
	loop := func(each time.Duration, n int) time.Duration {
		last := now
		for range n {
			last = now
			for due := false; !due; due = p.Due(now, most) {
				now = now.Add(time.Duration(p.Passes()) * each)
				assert.LessOrEqual(t, p.Passes(), uint32(most))
			}
		}
		return now.Sub(last)
	}
	for _, each := range []time.Duration{5, 10, 100, time.Microsecond, 5 * time.Microsecond} {
		got := loop(each, 30)
		assert.GreaterOrEqual(t, got, paceShortest, each)
		assert.LessOrEqual(t, got, paceLong, each)
	}
	assert.LessOrEqual(t, loop(50*time.Microsecond, 30), paceLong)
	assert.LessOrEqual(t, loop(time.Millisecond, 30), paceLong)
	assert.Equal(t, time.Second, loop(time.Second, 3))
	loop(10, 100)
	assert.Equal(t, uint32(most), p.Passes())
	loop(time.Millisecond, 2) // the first interval has as many passes as were fit before
	assert.LessOrEqual(t, loop(time.Millisecond, 1), paceLong)
}
