//go:build linux

package chaos

import (
	"sync/atomic"
	"time"
)

// clock measures the time in which a process could run. It ticks while a goroutine of
// the process is scheduled in time. A tick that is late counts like one that is not, so
// the clock stands still while the process or the machine is stopped, and is slow while
// processors are overloaded. Time limits of the test use it.
type clock struct{ ticks atomic.Int64 }

const tick = 10 * time.Millisecond

// newClock returns a clock that runs until the process ends.
func newClock() *clock {
	c := new(clock)
	go func() {
		for range time.Tick(tick) { // drops what comes late
			c.ticks.Add(1)
		}
	}()
	return c
}

// now returns the time since the start of the clock, and is never 0.
func (c *clock) now() time.Duration { return time.Duration(c.ticks.Load()+1) * tick }

func (c *clock) since(t time.Duration) time.Duration { return c.now() - t }
