package ucp

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// The fast paths of receives leave the buffer of a completed operation in slab.bufs:
// clearing it would slow down each of them. The slot's next operation overwrites it, or
// sweep clears it. sweep reaches every slot within sweepTime while the worker is
// progressed. All other paths clear the buffer themselves, in dropBuffers or release. So no
// buffer stays referenced while the worker sleeps.

// sweepTime is the longest duration of a sweep over all slots.
const sweepTime = 500 * time.Millisecond

// sweep clears the buffers of completed operations in the next n slots.
func (b *slab) sweep(n int) {
	for range n {
		if b.swept++; int(b.swept) >= len(b.slots) {
			b.swept = 1
		}
		if b.slots[b.swept].state != slotLive && b.bufs[b.swept] != nil {
			b.bufs[b.swept] = nil
		}
	}
}

// tidy sweeps the slots that are due since its last call. Progress passes call it.
func (b *slab) tidy(now ucs.Time) {
	past := min(now.Sub(b.tidied), sweepTime)
	b.tidied = now
	due := len(b.slots) * int(past/time.Microsecond) / int(sweepTime/time.Microsecond)
	b.sweep(min(max(16, due), len(b.slots)))
}

// sweepAll sweeps all slots before the worker sleeps. If it did so a moment ago, it returns
// how long the worker may sleep until the next sweep is due. 0: without a bound.
func (b *slab) sweepAll(now ucs.Time) time.Duration {
	if wait := b.sweptAll.Add(sweepTime / 2).Sub(now); b.sweptAll != 0 && wait > 0 {
		return wait
	}
	b.sweptAll = now
	b.sweep(len(b.slots))
	return 0
}
