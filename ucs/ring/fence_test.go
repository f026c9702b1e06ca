package ring

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/goucx/goucx/internal/race"
	"github.com/goucx/goucx/internal/suitetest"
)

// spinUntil waits for a turn without sleeping: both sides must run at once for
// their stores and loads to pass each other.
func spinUntil(turn *atomic.Uint64, n uint64) {
	for i := 0; turn.Load() < n; i++ {
		if i > 1000 {
			runtime.Gosched()
		}
	}
}

// TestFencedReleaseMissesNoWaiter: a producer without barriers of its own says
// that it waits and looks once more, while the consumer publishes and looks
// whether it waits. One of them must see the other, or the producer would sleep
// beside a free ring.
func TestFencedReleaseMissesNoWaiter(t *testing.T) {
	suitetest.SkipEmulated(t)
	rounds := uint64(100_000)
	if testing.Short() || race.Enabled {
		rounds = 5_000
	}
	l := Layout{Cells: 8, Bulk: 1024}
	p, c, _ := newPair(t, l)
	c.SetFence(true)
	var turn, over atomic.Uint64
	var woke bool
	go func() {
		for r := uint64(1); r <= rounds; r++ {
			for taken := 0; taken < l.Cells-1; {
				var m Message
				if more, _ := c.Next(&m); more {
					taken++
				} else {
					runtime.Gosched()
				}
			}
			over.Store(2*r - 1) // ready to release
			spinUntil(&turn, r)
			woke = c.Release()
			over.Store(2 * r)
		}
	}()
	for r := uint64(1); r <= rounds; r++ {
		for send(p, 0, 0, nil) {
		}
		spinUntil(&over, 2*r-1)
		turn.Store(r)
		p.SetWaiting(true)
		seen := p.WouldFit(0)
		spinUntil(&over, 2*r)
		require.True(t, seen || woke, "round %d: neither saw the other", r)
		p.SetWaiting(false)
		require.True(t, p.Refresh())
	}
}
