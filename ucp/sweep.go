package ucp

import (
	"time"

	"github.com/goucx/goucx/ucs"
)

// The hot paths of receives leave the buffer in the slot of an operation that has
// ended well: clearing it would cost each of them. The slot's next operation
// overwrites it, or sweep drops it, which reaches every slot within sweepTime while
// the worker is driven. All other paths drop the buffer themselves, by letGo or
// release, so nothing is left behind while the worker sleeps.

// sweepTime is how long a sweep over all slots takes at most.
const sweepTime = 500 * time.Millisecond

// sweep drops the buffers of ended operations in the next n slots.
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

// tidy sweeps as many slots as are due since the last call. Passes call it.
func (b *slab) tidy(now ucs.Time) {
	past := min(now.Sub(b.tidied), sweepTime)
	b.tidied = now
	due := len(b.slots) * int(past/time.Microsecond) / int(sweepTime/time.Microsecond)
	b.sweep(min(max(16, due), len(b.slots)))
}

// sweepAll sweeps all slots before the worker sleeps. Where it has done so a moment
// ago it returns how long the worker may sleep until the next is due; 0: without a
// bound.
func (b *slab) sweepAll(now ucs.Time) time.Duration {
	if wait := b.sweptAll.Add(sweepTime / 2).Sub(now); b.sweptAll != 0 && wait > 0 {
		return wait
	}
	b.sweptAll = now
	b.sweep(len(b.slots))
	return 0
}
