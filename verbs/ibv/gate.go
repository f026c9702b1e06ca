package ibv

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// gate counts the calls that use an object of libibverbs. It lets close wait until none does, and
// keeps later calls out, because a destroyed object must not be used. It also counts all calls.
//
// The word holds, from bit 0: the calls that are inside (16 bits); all calls (47 bits); closed.
//
// Concurrency: any goroutine; not more than 65535 at once.
type gate struct{ word atomic.Uint64 }

const (
	gateCall   = 1<<16 | 1
	gateLeave  = ^uint64(0) // -1
	gateInside = 1<<16 - 1
	gateClosed = 1 << 63
)

// enter counts a call. It returns false if the gate is closed; leave must be called otherwise.
//
//hot:bench BenchmarkCrossing
func (g *gate) enter() bool {
	if g.word.Add(gateCall) < gateClosed {
		return true
	}
	g.word.Add(gateLeave)
	return false
}

// leave ends a call.
//
//hot:bench BenchmarkCrossing
func (g *gate) leave() { g.word.Add(gateLeave) }

// close lets no further call in and waits for those inside. It returns false if the gate was
// closed before.
func (g *gate) close() bool {
	if g.word.Or(gateClosed)&gateClosed != 0 {
		return false
	}
	g.quiesce()
	return true
}

// quiesce waits until, at one moment, no call is inside.
func (g *gate) quiesce() {
	for g.word.Load()&gateInside != 0 {
		cpu.Yield()
	}
}

// calls returns the number of calls so far.
func (g *gate) calls() uint64 { return g.word.Load() &^ gateClosed >> 16 }
