package ucs

import "time"

// Pace has a loop that counts its passes do periodic work: every 20 us to 2 ms in a loop that spins, and in every pass of
// one that runs once in some milliseconds. The zero value begins with every pass.
//
// Concurrency: one goroutine.
type Pace struct {
	passes uint32
	last   Time
}

const (
	paceShort = 20 * time.Microsecond
	paceLong  = 2 * time.Millisecond
	paceAim   = time.Millisecond // of intervals that were too long
)

// Passes returns the number of passes after which to read the clock and call Due.
func (p *Pace) Passes() uint32 { return max(p.passes, 1) }

// Due reports whether the work is due at now, and adapts Passes, which becomes at most most.
func (p *Pace) Due(now Time, most uint32) bool {
	elapsed := now.Sub(p.last)
	if elapsed < paceShort {
		p.passes = min(2*p.Passes(), most)
		return false
	}
	p.last = now
	if elapsed > paceLong {
		p.passes = uint32(int64(p.Passes()) * int64(paceAim) / int64(elapsed))
	}
	return true
}
