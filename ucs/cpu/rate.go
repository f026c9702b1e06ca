package cpu

import (
	"math"
	"sync"
	"time"

	"github.com/goucx/goucx/ucs"
)

// calibration is the duration of CyclesPerSecond's measurement. The error is about that of
// one clock reading, 1 in 100,000.
const calibration = 5 * time.Millisecond

// CyclesPerSecond returns the rate of Cycles. The first call measures it against the
// monotonic clock for 5 ms. Later calls return the same value.
func CyclesPerSecond() float64 { return rate() }

var rate = sync.OnceValue(func() float64 {
	c0, t0 := readClocks()
	c1, t1 := c0, t0
	for t1.Sub(t0) < calibration {
		c1, t1 = readClocks()
	}
	return float64(c1-c0) / t1.Sub(t0).Seconds()
})

// readClocks reads both clocks at nearly the same time. It returns the best of ten tries, so
// a try that was interrupted is discarded.
func readClocks() (cycles uint64, now ucs.Time) {
	best := uint64(math.MaxUint64)
	for range 10 {
		before := Cycles()
		t := ucs.Now()
		if d := Cycles() - before; d <= best {
			best, cycles, now = d, before+d/2, t
		}
	}
	return cycles, now
}
