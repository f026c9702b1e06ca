//go:build linux && cgo && ibverbs

package ibv

import (
	"sync/atomic"

	"github.com/goucx/goucx/ucs/cpu"
)

// gate counts the calls that use a completion channel. It lets close wait until none does, and
// keeps later calls out, because a destroyed object must not be used. Queues have a gate in C.
//
// The word holds the number of calls that are inside, and above it closed.
//
// Concurrency: any goroutine.
type gate struct{ word atomic.Uint64 }

const (
	gateLeave  = ^uint64(0) // -1
	gateClosed = 1 << 63
)

// enter counts a call. It returns false if the gate is closed; leave must be called otherwise.
func (g *gate) enter() bool {
	if g.word.Add(1) < gateClosed {
		return true
	}
	g.word.Add(gateLeave)
	return false
}

// leave ends a call.
func (g *gate) leave() { g.word.Add(gateLeave) }

// close lets no further call in and waits for those inside. It is called once.
func (g *gate) close() {
	g.word.Or(gateClosed)
	for g.word.Load() != gateClosed {
		cpu.Yield()
	}
}
