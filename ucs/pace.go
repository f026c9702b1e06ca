package ucs

import "time"

// Pace has a loop that counts its passes do periodic work: every 20 us to 4 ms in a loop that spins, and in every pass of
// one that runs once in some milliseconds. The zero value begins with every pass.
//
// Concurrency: one goroutine.
type Pace struct {
	passes uint32
	last   Time // the last time that the work was due
}

const (
	paceShortest = 20 * time.Microsecond // between two times that the work is due
	paceShort    = 500 * time.Microsecond
	paceLong     = 4 * time.Millisecond
	paceAim      = time.Millisecond // of intervals that were too long
)

// Passes returns the number of passes after which to read the clock and call Due.
func (p *Pace) Passes() uint32 { return max(p.passes, 1) }

// Due reports whether the work is due at now, and adapts Passes, which becomes at most most.
func (p *Pace) Due(now Time, most uint32) bool {
	elapsed := now.Sub(p.last)
	switch {
	case elapsed < paceShort:
		p.passes = min(2*p.Passes(), most)
	case elapsed > paceLong:
		p.passes = uint32(int64(p.Passes()) * int64(paceAim) / int64(elapsed))
	}
	if elapsed < paceShortest {
		return false
	}
	p.last = now
	return true
}
